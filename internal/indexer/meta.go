package indexer

import (
	"hash/maphash"

	"github.com/tidings-io/tidings/internal/object"
)

// meta is the part of an incoming object's metadata that decides what becomes of
// the object.
type meta struct {
	namespace, name string
	resourceVersion uint64 // of the object; 0: not comparable
	// uid is a hash of the object's uid. The seed is the store's own, so that no
	// source can construct two uids with the same hash.
	uid uint64
}

// metaWindow holds the metadata of the objects that are applied next.
type metaWindow [32]meta

// prefetch reads the metadata of the next n objects. Incoming objects are no
// longer in the CPU's caches, if they ever were, and each is spread over several
// places in memory. Reading one field of all objects, then the next, lets the
// cache misses overlap. That is several times as fast as one object after the
// other; see [walk].
func prefetch[T object.Object](ix *Indexer[T], out *metaWindow, n int, at func(i int) (o T, ok bool)) {
	var versions, uids [len(out)]string
	for i := range n {
		o, ok := at(i)
		if !ok {
			continue
		}
		out[i].namespace, out[i].name = o.GetNamespace(), o.GetName()
		versions[i], uids[i] = o.GetResourceVersion(), string(o.GetUID())
	}
	for i := range n {
		out[i].resourceVersion, out[i].uid = object.Version(versions[i]), maphash.String(ix.seed, uids[i])
	}
}

// same reports whether o is the version of the object that the store holds.
func same[T object.Object](s *slot[T], o T, m *meta) bool {
	if s.resourceVersion != m.resourceVersion || s.uid != m.uid {
		return false
	}
	if m.resourceVersion != 0 {
		return true
	}
	version := o.GetResourceVersion()
	return version != "" && version == s.newest.Load().object.GetResourceVersion()
}

// stale reports whether the incoming object is an earlier version of the very
// object that the store holds.
func stale[T object.Object](s *slot[T], m *meta) bool {
	return m.resourceVersion != 0 && s.resourceVersion > m.resourceVersion && s.uid == m.uid
}
