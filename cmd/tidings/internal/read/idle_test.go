package read_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
	"github.com/tidings-io/tidings/internal/fakeapi"
)

// A resource that was mirrored on demand is no longer mirrored when it is idle, and is
// mirrored again by the next read.
func TestIdleResourceIsNotMirrored(t *testing.T) {
	opts := mirror.Options{IdleTimeout: 10 * time.Minute, Resources: []string{"namespaces", mirror.Everything}}
	inBubble(t, fakeapi.Options{}, opts, func(r *rig) {
		v := r.set("default", "a", "1")
		q := r.query("cm")
		watched := func() int { return r.server.OpenWatches(configMaps) }
		r.list(q)
		for range 5 { // each read counts
			time.Sleep(9 * time.Minute)
			synctest.Wait()
			if watched() == 0 {
				t.Fatal("it was dropped while in use")
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
			t.Error("it was dropped too early")
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if n := watched(); n != 0 {
			t.Errorf("it is idle, and the cluster has %d watches", n)
		}
		if n := r.server.OpenWatches(namespaces); n == 0 {
			t.Error("a resource of Options.Resources was dropped")
		}
		v = r.set("default", "a", "3")
		if got, _ := r.list(q); len(got) != 1 || got[0] != "default/a@"+v {
			t.Errorf("read again it has %v, want version %s", got, v)
		}
	})
}
