package cli

import (
	"cmp"
	"context"
	"io"
	"iter"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// replay prints the changes of wanted since f.begin, of all clusters in the order of time.
// The targets then have the versions from which a watch goes on: it has the changes that
// were not recorded yet, and no others.
func (f *watcher) replay(ctx context.Context, wanted []arg) error {
	told := &remarks{notice: f.g.screen.notice}
	s := span{since: f.begin, objects: f.needsAll || f.showsLabels}
	var sequences []iter.Seq2[*change, error]
	for _, p := range f.parts {
		if err := f.find(ctx, p, wanted, func() {}); err != nil {
			if !f.many || ctx.Err() != nil {
				return err
			}
			f.fail(p, err)
			continue
		}
		for i, o := range p.targets {
			changes := f.g.changesOf(ctx, o, s, told, func(version string) { p.targets[i].from = version })
			sequences = append(sequences, func(yield func(*change, error) bool) {
				for c, err := range changes {
					if err != nil && f.many && ctx.Err() == nil {
						f.fail(p, err)
						return
					}
					if !yield(c, err) {
						return
					}
				}
			})
		}
	}
	err := inOrder(sequences, func(c *change) error { return f.printPast(c, told) })
	if err == nil {
		err = f.g.screen.flush()
	}
	return err
}

// printPast prints a change of the past as an event.
func (f *watcher) printPast(c *change, told *remarks) error {
	if c.gap != nil {
		told.tell(c.target.title(f.g) + ": " + gapText(c.gap))
		return nil
	}
	out := event{
		kind: c.target.resource.Kind, change: c.Type, time: c.Time,
		meta: &metav1.ObjectMeta{Namespace: c.Namespace, Name: c.Name, UID: types.UID(c.UID), ResourceVersion: c.ResourceVersion},
	}
	if f.many {
		out.cluster = c.target.cluster.Name()
	}
	if c.Object != nil {
		u, err := decodeObject(c.Object)
		if err != nil {
			return err
		}
		u.SetResourceVersion(c.ResourceVersion)
		out.object, out.meta = u, u
	}
	if c.Before != nil {
		var err error
		if out.old, err = decodeObject(c.Before); err != nil {
			return err
		}
	}
	if f.showsDiff {
		if f.last == nil {
			f.last = map[types.UID]*unstructured.Unstructured{}
		}
		if f.last[types.UID(c.UID)] = out.object; c.Type == "DELETED" {
			delete(f.last, types.UID(c.UID))
		}
	}
	var failed error
	err := f.g.screen.print(false, func(w io.Writer) { failed = f.format(w, out) })
	return cmp.Or(err, failed)
}

// lastOf returns the state in which the past has left an object, once.
func (f *watcher) lastOf(uid types.UID) *unstructured.Unstructured {
	f.mu.Lock()
	defer f.mu.Unlock()
	last := f.last[uid]
	delete(f.last, uid)
	return last
}
