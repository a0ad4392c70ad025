package read

import (
	"context"
	"errors"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
	"github.com/tidings-io/tidings/informer"
	"github.com/tidings-io/tidings/internal/codec"
	"github.com/tidings-io/tidings/internal/object"
	"github.com/tidings-io/tidings/internal/source"
)

// This file makes the mirror as fresh as its cluster. The mirror's watch delivers
// changes, and a bookmark once a minute if there are none. A reader of the newest state
// cannot wait for that, so the mirror sends requests:
//
//   - It gets the present version of the cluster with a list of one object, metadata
//     only, which costs next to nothing. If the mirror has that version, it is fresh.
//   - If not, then either the resource has changed and the watch is about to deliver
//     the change, or it has not, and the mirror needs proof of that. There are two
//     proofs. One is a list of all metadata that has the same versions as the mirror.
//     Its cost grows with the number of objects, but is below that of a list of the
//     objects themselves. The other is a watch from the mirror's version that begins
//     with a bookmark. It costs next to nothing, but an API server sends a bookmark
//     about two seconds before the end of a watch and checks once a second, so a
//     watch of three seconds gets it after one or two. For few objects the mirror
//     lists; for many it does both and takes the first result. So no reader waits
//     longer than a list by the API server would take, and a list of very many objects
//     is cancelled.
//
// No proof is both quick and cheap. An empty streamed list (KEP-3157) has its bookmark
// at once, but that holds for its own stream only: the mirror's watch may have events in
// transit. No selector can select by version, so no list can be limited to what has
// changed. And bookmarks of other watches come at most once a second.
//
// All concurrent readers share each of these requests.
const (
	// cheapProof is the number of objects up to which the proof is as cheap as the
	// request for the version.
	cheapProof = 250
	// proofByList is the number of objects up to which a list is always quicker than
	// a watch: a kube-apiserver lists the metadata of 5,000 pods in a tenth of a
	// second.
	proofByList = 10_000
	// proofSeconds is the duration of a watch for a bookmark.
	proofSeconds = 3
	// watchGrace is how long to wait for the watch to deliver the changes that a list
	// has shown, before the next proof.
	watchGrace = 50 * time.Millisecond
	// freshPatience is how long the API server may take to answer.
	freshPatience = 10 * time.Second
)

// metadata returns a source of the metadata of the informer's objects.
func (f *feed) metadata() (*source.Kube[*metav1.PartialObjectMetadata], error) {
	gvk := f.Resource().GVK()
	objects, err := codec.For[*metav1.PartialObjectMetadata](gvk, codec.Options{})
	if err != nil {
		return nil, err
	}
	return kube(f.Cluster(), source.Target{Resource: f.Resource().GVR(), Kind: gvk.Kind, Namespace: f.Namespace()}, objects), nil
}

// version is the resourceVersion that the mirror has reached.
func (f *feed) version() uint64 {
	version, _ := f.Internals().Latest()
	return object.Version(version)
}

// newestVersion returns the present version of the cluster.
func (f *feed) newestVersion(ctx context.Context) (uint64, error) {
	if f.Cluster().Origin() != nil {
		return f.latest.do(ctx)
	}
	if _, objects := f.Internals().Latest(); objects <= cheapProof {
		return f.proofs.do(ctx)
	}
	return f.latest.do(ctx)
}

// reach waits until the mirror has reached a version that the cluster has.
func (f *feed) reach(ctx context.Context, version uint64) error {
	if f.Cluster().Origin() != nil { // it has been published
		ctx, cancel := context.WithTimeoutCause(ctx, freshPatience, errTimeout)
		defer cancel()
		if err := f.Engine().WaitFor(ctx, decimal(version)); err != nil {
			return f.Cluster().Upstream("", err)
		}
		return nil
	}
	for f.version() < version {
		if _, err := f.proofs.do(ctx); err != nil {
			return err
		}
		if f.version() >= version {
			break
		}
		grace, cancel := context.WithTimeout(ctx, watchGrace)
		_ = f.Engine().WaitFor(grace, decimal(version))
		cancel()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return nil
}

// Fresh makes an informer as fresh as its cluster is now. It returns the resourceVersion that the
// informer has then reached at least.
func (r *Reader) Fresh(ctx context.Context, inf *mirror.Informer) (resourceVersion uint64, err error) {
	f := r.feed(inf)
	err = f.during(ctx, func(ctx context.Context) error {
		if resourceVersion, err = f.newestVersion(ctx); err != nil {
			return err
		}
		return f.reach(ctx, resourceVersion)
	})
	return resourceVersion, err
}

// fetchLatest gets the present version of the cluster.
func (f *feed) fetchLatest(ctx context.Context) (uint64, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, freshPatience, errTimeout)
	defer cancel()
	if origin := f.Cluster().Origin(); origin != nil {
		version, err := origin.Fresh(ctx, f.Resource().GVR(), f.Namespace())
		return version, f.Cluster().Upstream("", err)
	}
	from, err := f.metadata()
	if err != nil {
		return 0, err
	}
	version, err := from.Latest(ctx)
	if err != nil {
		return 0, f.Cluster().Upstream("", err)
	}
	return object.Version(version), nil
}

// prove tries to prove that the resource has not changed since the mirror's newest
// state, and if so, confirms that state at the cluster's version. It returns the newest
// version of the cluster that it has seen. If there were changes, the mirror reaches
// that version only when its watch delivers them.
func (f *feed) prove(ctx context.Context) (uint64, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, freshPatience, errTimeout)
	defer cancel()
	view := f.Engine().View()
	defer view.Release()
	if view.Len() <= proofByList || view.ResourceVersion() == "" {
		return f.proveByList(ctx, view)
	}
	type proof struct {
		version uint64
		err     error
	}
	proofs := make(chan proof, 2)
	for _, by := range []func(context.Context, *informer.View[*codec.Raw]) (uint64, error){f.proveByWatch, f.proveByList} {
		go func() {
			version, err := by(ctx, view)
			proofs <- proof{version, err}
		}()
	}
	first := <-proofs
	if first.err == nil {
		cancel()
	}
	second := <-proofs // the view is in use until then
	if first.err != nil && second.err == nil {
		return second.version, nil
	}
	return first.version, first.err
}

// errDiffers ends a watch after its first event.
var errDiffers = errors.New("the resource has changed")

// errSilent is the error of a watch that has ended without an event.
var errSilent = &mirror.Error{Reason: mirror.Unreachable, Message: "the API server ended a watch without a bookmark", Retry: time.Second}

// proveByWatch waits for a bookmark from a watch.
func (f *feed) proveByWatch(ctx context.Context, view *informer.View[*codec.Raw]) (uint64, error) {
	from, err := f.metadata()
	if err != nil {
		return 0, err
	}
	version := ""
	err = from.Watch(ctx, source.WatchOptions{ResourceVersion: view.ResourceVersion(), TimeoutSeconds: proofSeconds},
		func(e source.Event[*metav1.PartialObjectMetadata]) error {
			if e.Type == source.Bookmark {
				version = e.ResourceVersion
			}
			return errDiffers // or a bookmark: one event is enough
		})
	switch {
	case err == nil:
		return 0, errSilent
	case !errors.Is(err, errDiffers):
		return 0, f.Cluster().Upstream("", err)
	}
	f.Internals().Confirm(view, version)
	return object.Version(version), nil
}

// proveByList compares the view with a list of all metadata.
func (f *feed) proveByList(ctx context.Context, view *informer.View[*codec.Raw]) (uint64, error) {
	from, err := f.metadata()
	if err != nil {
		return 0, err
	}
	seen, differs := 0, false
	result, err := from.List(ctx, source.ListOptions{}, func(o *metav1.PartialObjectMetadata) error {
		seen++
		if !differs {
			have, ok := view.Get(o.Namespace, o.Name)
			differs = !ok || have.GetUID() != o.UID || have.GetResourceVersion() != o.ResourceVersion
		}
		return nil
	})
	if err != nil {
		return 0, f.Cluster().Upstream("", err)
	}
	if !differs && seen == view.Len() {
		f.Internals().Confirm(view, result.ResourceVersion)
	}
	return object.Version(result.ResourceVersion), nil
}
