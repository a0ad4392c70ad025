package reflector_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidings-io/tidings/internal/reflector"
	"github.com/tidings-io/tidings/internal/source"
)

// versioner is a script that also answers requests for the latest version.
type versioner struct {
	*script
	latest string
	err    error
}

func (v *versioner) Latest(context.Context) (string, error) {
	time.Sleep(time.Millisecond) // the watch is first
	v.note("latest")
	return v.latest, v.err
}

// A server that has been restored from a backup sends nothing to a watch from a version
// that it has not reached again. Only its latest version shows that it was restored.
func TestServerIsBehind(t *testing.T) {
	list := answer{events: []source.Event[*meta]{added("a", "8"), end("9")}, err: failed(errors.New("connection reset"))}
	change := answer{events: []source.Event[*meta]{added("b", "10")}}
	for name, c := range map[string]struct {
		second answer
		latest string
		err    error
		asked  []string
		pushed []string
	}{
		"restored":          {answer{}, "5", nil, []string{"watch list", "watch from=9", "latest", "watch list"}, []string{"replaced a@8 at 9", "replaced a@3 at 5"}},
		"nothing happens":   {answer{}, "9", nil, []string{"watch list", "watch from=9", "latest"}, []string{"replaced a@8 at 9"}},
		"others do":         {answer{}, "700", nil, []string{"watch list", "watch from=9", "latest"}, []string{"replaced a@8 at 9"}},
		"no answer":         {answer{}, "", errors.New("no"), []string{"watch list", "watch from=9", "latest"}, []string{"replaced a@8 at 9"}},
		"no numbers":        {answer{}, "abc", nil, []string{"watch list", "watch from=9", "latest"}, []string{"replaced a@8 at 9"}},
		"others do here":    {change, "10", nil, []string{"watch list", "watch from=9", "latest"}, []string{"replaced a@8 at 9", "added b@10"}},
		"restored and busy": {change, "5", nil, []string{"watch list", "watch from=9", "latest", "watch list"}, []string{"replaced a@8 at 9", "added b@10", "replaced a@3 at 5"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				restored := answer{events: []source.Event[*meta]{added("a", "3"), end("5")}}
				s := &versioner{script: &script{answers: []answer{list, c.second, restored}}, latest: c.latest, err: c.err}
				deltas, status := run(t, s, reflector.Options{}, time.Minute)
				expect(t, "it asked", s.asked, c.asked...)
				expect(t, "it pushed", deltas, c.pushed...)
				if status.Phase != reflector.Watching {
					t.Errorf("the status is %+v", status)
				}
			})
		})
	}
}
