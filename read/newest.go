package read

import (
	"context"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tidings-io/tidings/mirror"
)

// getsAtOnce is how many objects of a resource the cluster is asked for at a time.
const getsAtOnce = 16

// newest returns the object of a query as it is now; nil if there is none.
//
// One object takes no proof that the mirror has everything: the cluster has it in a
// millisecond. So it is asked for the object, once for all who want it at a time.
// If it is being asked for many already it is left alone, and whoever wants another
// one waits, together with all others, for the mirror to be up to date.
func (r *Reader) newest(ctx context.Context, q *Query) (o *Object, version string, err error) {
	f, err := r.ready(ctx, q)
	if err != nil {
		return nil, "", err
	}
	if err := f.during(ctx, func(ctx context.Context) (err error) {
		o, err = f.gets.do(ctx, types.NamespacedName{Namespace: q.ask.Namespace, Name: q.ask.Name})
		return err
	}); err != nil {
		return r.find(ctx, q, Latest, 0)
	}
	if o != nil {
		version = o.GetResourceVersion()
	}
	return o, version, nil
}

// getLive returns one object as the cluster has it; nil if there is none.
func (f *feed) getLive(ctx context.Context, named types.NamespacedName) (*Object, error) {
	q := &Query{
		ask:      Ask{Cluster: f.Cluster(), Resource: f.Resource().GVR(), Verb: Get, Namespace: named.Namespace, Name: named.Name},
		resource: f.Resource(),
	}
	ctx, cancel := context.WithTimeoutCause(ctx, freshPatience, errWaited)
	defer cancel()
	o, err := q.getLive(ctx)
	if mirror.ReasonOf(err) == mirror.NotFound {
		return nil, nil
	}
	return o, err
}
