package read_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidings-io/tidings/demo"
	"github.com/tidings-io/tidings/mirror"
)

// What was mirrored on somebody's first use is given up when nobody reads it any
// more, and mirrored anew when somebody does.
func TestGivesUpWhatNobodyReads(t *testing.T) {
	opts := mirror.Options{Unread: 10 * time.Minute, Resources: []string{"namespaces", mirror.Everything}}
	inBubble(t, demo.Options{}, opts, func(r *rig) {
		v := r.set("default", "a", "1")
		q := r.query("cm")
		watched := func() int { return r.server.OpenWatches(configMaps) }
		r.list(q)
		for range 5 { // each read counts
			time.Sleep(9 * time.Minute)
			synctest.Wait()
			if watched() == 0 {
				t.Fatal("it was given up under a reader")
			}
			r.list(q)
		}
		w := r.watch(q, "")
		w.expect("ADDED default/a@"+v, "SYNCED")
		time.Sleep(time.Hour) // and so does an open watch
		v = r.set("default", "a", "2")
		w.expect("MODIFIED default/a@" + v)
		w.stop()

		time.Sleep(9 * time.Minute)
		synctest.Wait()
		if watched() == 0 {
			t.Error("it was given up too early")
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if n := watched(); n != 0 {
			t.Errorf("nobody reads, and the cluster is watched %d times", n)
		}
		if n := r.server.OpenWatches(namespaces); n == 0 {
			t.Error("what was asked for by name was given up")
		}
		v = r.set("default", "a", "3")
		if got, _ := r.list(q); len(got) != 1 || got[0] != "default/a@"+v {
			t.Errorf("read again it has %v, want version %s", got, v)
		}
	})
}
