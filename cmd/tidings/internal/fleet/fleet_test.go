package fleet_test

import (
	"fmt"
	"maps"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/tidings-io/tidings/cmd/tidings/internal/read"
)

func valueOf(json []byte) string { return gjson.GetBytes(json, "data.v").Str }

// has waits until a part has values, and shows what it has otherwise.
func (p *part) has(want map[string]string) {
	p.Helper()
	p.eventually("what a mirror has", func() error {
		got, err := p.list(read.Any)
		if err == nil && !maps.Equal(got, want) {
			err = fmt.Errorf("got %v, want %v", got, want)
		}
		return err
	})
}

func TestReplicaHasWhatIsPublished(t *testing.T) {
	r := newRig(t)
	r.put("a", "1")
	r.publisher("first")
	one := r.replica("one")
	one.has(map[string]string{"a": "1"})
	lists, watches := r.api.Count("list", configMaps), r.api.Count("watch", configMaps)
	replicas := []*part{one}
	for i := range 9 {
		replicas = append(replicas, r.replica(fmt.Sprint("another-", i)))
	}
	r.put("b", "2")
	r.put("a", "3")
	r.must(r.api.Delete(configMaps, "shop", "b"))
	r.put("c", "4")
	for _, p := range replicas {
		p.has(map[string]string{"a": "3", "c": "4"})
	}
	if l, w := r.api.Count("list", configMaps), r.api.Count("watch", configMaps); l != lists || w != watches {
		t.Errorf("the API server was asked for %d lists and %d watches more by ten replicas", l-lists, w-watches)
	}
}
