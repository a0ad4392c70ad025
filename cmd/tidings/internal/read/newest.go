package read

import (
	"context"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
)

// maxGets bounds the objects of a resource that are read live at the same time.
const maxGets = 16

// newest returns the object of a query as it is in the cluster, nil if there is none.
//
// A single object needs no proof that the whole mirror is fresh: the API server
// returns it in a millisecond. So newest gets it from there, with one request for all
// concurrent callers. If there are too many such requests already, the caller waits
// with all others until the mirror is up to date.
func (r *Reader) newest(ctx context.Context, q *Query) (o *Object, version string, err error) {
	if q.invalidNamespace() {
		return r.find(ctx, q, Any, 0)
	}
	if q.params.Cluster.Origin() != nil {
		return r.find(ctx, q, Latest, 0)
	}
	f, err := r.ready(ctx, q)
	if err != nil {
		return nil, "", err
	}
	if err := f.during(ctx, func(ctx context.Context) (err error) {
		o, err = f.gets.do(ctx, types.NamespacedName{Namespace: q.params.Namespace, Name: q.params.Name})
		return err
	}); err != nil {
		return r.find(ctx, q, Latest, 0)
	}
	if o != nil {
		version = o.GetResourceVersion()
	}
	return o, version, nil
}

// getLive gets one object from the API server, nil if there is none.
func (f *feed) getLive(ctx context.Context, named types.NamespacedName) (*Object, error) {
	q := &Query{
		params:   Params{Cluster: f.Cluster(), Resource: f.Resource().GVR(), Verb: Get, Namespace: named.Namespace, Name: named.Name},
		resource: f.Resource(),
	}
	ctx, cancel := context.WithTimeoutCause(ctx, freshPatience, errTimeout)
	defer cancel()
	o, err := q.getLive(ctx)
	if mirror.ReasonOf(err) == mirror.NotFound {
		return nil, nil
	}
	return o, err
}
