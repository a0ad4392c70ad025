package indexer

import (
	"hash/maphash"

	"github.com/tidings-io/tidings/internal/object"
)

// arrival is what decides about an object that comes.
type arrival struct {
	namespace, name string
	number          uint64 // its resourceVersion; 0: not comparable
	// uid is a hash of the object's uid with a seed of the store's own, which no
	// source can make two uids agree in.
	uid uint64
}

// arrivals are those of objects whose turn comes soon.
type arrivals [32]arrival

// look reads the first n arrivals ahead of their turn. Objects that come have left
// the processor's caches, if they have ever been there, and each is in several
// places of memory: one place of all of them, then the next, is several times as
// quick as one object after the other, see [walk].
func look[T object.Object](ix *Indexer[T], out *arrivals, n int, at func(i int) (o T, ok bool)) {
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
		out[i].number, out[i].uid = object.Version(versions[i]), maphash.String(ix.seed, uids[i])
	}
}

// same says that o is the version of the object that is held.
func same[T object.Object](s *slot[T], held *version[T], o T, is *arrival) bool {
	if held.number != is.number || s.uid != is.uid {
		return false
	}
	if is.number != 0 {
		return true
	}
	version := o.GetResourceVersion()
	return version != "" && version == held.object.GetResourceVersion()
}

// stale says that what comes is an earlier state of the very object that is held.
func stale[T object.Object](s *slot[T], held *version[T], is *arrival) bool {
	return is.number != 0 && held.number > is.number && s.uid == is.uid
}
