package journal

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync"

	"github.com/cockroachdb/pebble/v2"

	"github.com/tidings-io/tidings/cluster"
	"github.com/tidings-io/tidings/informer"
	"github.com/tidings-io/tidings/internal/codec"
)

// NewInformer creates an informer as [informer.New] does. It starts from the state that
// the journal has under name, and its state is kept there. The name stands for the type and
// all options that select or change objects: use another one when you change them. It is an
// error if an informer of the journal has the name already. A [informer.Transform] sees
// the objects of the journal again.
func NewInformer[T informer.Object](j *Journal, name string, c *cluster.Cluster, opts ...informer.Option) (*informer.Informer[T], error) {
	k := &keeper{journal: j, name: name, conn: c, log: slog.Default().With("journal", j.dir, "informer", name)}
	inf, err := informer.New[T](c, append(opts, informer.StartFrom(k))...)
	if err != nil {
		return nil, err
	}
	if err := j.add(k); err != nil {
		return nil, err
	}
	inf.AddHandler(informer.HandlerFunc[T](func(e informer.Event[T]) { keep(k, e) }), informer.Bookmarks(), informer.FoldAfter(backlog), informer.Named("journal"))
	return inf, nil
}

const (
	// backlog is the number of events that may wait for the disk. What is folded is not
	// missed: the journal has the newest versions only.
	backlog = 10_000
	// batchBytes is the size at which a batch is written.
	batchBytes = 1 << 20
)

// keeper keeps the objects of one informer. The keys of the database are
//
//	<name> 0 c        the identity of the cluster
//	<name> 0 v        the resourceVersion of the objects; none while a list is incomplete
//	<name> 0 o <key>  the JSON of an object
type keeper struct {
	journal *Journal
	name    string
	conn    *cluster.Cluster
	log     *slog.Logger

	mu     sync.Mutex
	batch  *pebble.Batch // nil: nothing waits
	failed bool          // nothing is kept any more
	begun  bool          // there was an event
	synced bool          // the first list is complete
	// held are the objects of the journal that the first list did not have so far; nil if
	// they are not known.
	held map[string]identity
}

// identity identifies a version of an object.
type identity struct{ uid, version string }

func (k *keeper) key(kind byte, rest string) []byte {
	return append(append([]byte(k.name), 0, kind), rest...)
}

// Restore implements [informer.Restorer].
func (k *keeper) Restore(ctx context.Context, each func([]byte) error) (resourceVersion string, err error) {
	of, err := identify(ctx, k.conn)
	if err != nil {
		return "", err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.held = map[string]identity{}
	db := k.journal.db
	if resourceVersion, err = k.state(db, of); err != nil || resourceVersion == "" {
		return "", errors.Join(err, k.reset(of))
	}
	prefix := k.key('o', "")
	it, err := db.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: k.key('o'+1, "")})
	if err != nil {
		return "", err
	}
	for ok := it.First(); ok && err == nil; ok = it.Next() {
		id, _ := codec.Peek(codec.JSON, it.Value()) // each checks the object
		k.held[string(it.Key()[len(prefix):])] = identity{strings.Clone(id.UID), strings.Clone(id.ResourceVersion)}
		if err = ctx.Err(); err == nil {
			err = each(it.Value())
		}
	}
	if err = errors.Join(err, it.Error(), it.Close()); err != nil {
		if clear(k.held); ctx.Err() == nil {
			err = errors.Join(err, k.reset(of))
		}
		return "", err
	}
	return resourceVersion, nil
}

// state returns the resourceVersion of the objects, empty if they are not a state of the
// cluster.
func (k *keeper) state(db pebble.Reader, of string) (resourceVersion string, err error) {
	get := func(kind byte) string {
		value, closer, e := db.Get(k.key(kind, ""))
		if e != nil {
			if !errors.Is(e, pebble.ErrNotFound) {
				err = errors.Join(err, e)
			}
			return ""
		}
		defer closer.Close()
		return string(value)
	}
	resourceVersion = get('v')
	if get('c') != of {
		resourceVersion = ""
	}
	return resourceVersion, err
}

// reset begins anew, for a cluster.
func (k *keeper) reset(of string) error {
	b := k.journal.db.NewBatch()
	defer b.Close()
	err := errors.Join(
		b.DeleteRange(k.key('o', ""), k.key('o'+1, ""), nil),
		b.Delete(k.key('v', ""), nil),
		b.Set(k.key('c', ""), []byte(of), nil))
	if err != nil {
		return err
	}
	return k.journal.apply(b)
}

// keep adds an event to the batch.
func keep[T informer.Object](k *keeper, e informer.Event[T]) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.failed {
		return
	}
	if k.batch == nil {
		k.batch = k.journal.db.NewBatch()
	}
	var err error
	if !k.begun && k.held == nil { // the journal could not be read, or the cluster not be identified
		err = errors.Join(k.batch.DeleteRange(k.key('o', ""), k.key('o'+1, ""), nil), k.batch.Delete(k.key('c', ""), nil))
	}
	k.begun = true
	switch e.Type {
	case informer.Added, informer.Updated:
		key := informer.Key(e.Object)
		was, known := k.held[key]
		delete(k.held, key)
		if known && was == (identity{string(e.Object.GetUID()), e.Object.GetResourceVersion()}) {
			break
		}
		raw, failed := json.Marshal(e.Object)
		err = errors.Join(err, failed, k.batch.Set(k.key('o', key), raw, nil))
	case informer.Deleted:
		err = errors.Join(err, k.batch.Delete(k.key('o', informer.Key(e.Object)), nil))
	case informer.Synced:
		for key := range k.held {
			err = errors.Join(err, k.batch.Delete(k.key('o', key), nil))
		}
		k.held, k.synced = nil, true
	}
	if k.synced && (e.Resumable || e.Type == informer.Synced || e.Type == informer.Bookmark) {
		err = errors.Join(err, k.batch.Set(k.key('v', ""), []byte(e.ResourceVersion()), nil))
	} else {
		err = errors.Join(err, k.batch.Delete(k.key('v', ""), nil))
	}
	if err != nil {
		k.fail(err)
	} else if k.batch.Len() > batchBytes {
		k.write()
	}
}

// flush writes the batch.
func (k *keeper) flush() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.write()
}

// write is flush while k.mu is held.
func (k *keeper) write() {
	if k.batch == nil || k.failed {
		return
	}
	if err := k.journal.apply(k.batch); err != nil {
		k.fail(err)
		return
	}
	_ = k.batch.Close()
	k.batch = nil
}

// fail gives up. What is on disk remains a state that the cluster had.
func (k *keeper) fail(err error) {
	k.log.Error("the journal is not written any more; the next start lists what has changed since", "err", err)
	k.failed, k.batch, k.held = true, nil, nil
}

// close writes the batch, and lets nothing be written any more.
func (k *keeper) close() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.write()
	k.failed = true
}
