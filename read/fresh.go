package read

import (
	"context"
	"errors"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidings-io/tidings/informer"
	"github.com/tidings-io/tidings/internal/codec"
	"github.com/tidings-io/tidings/internal/object"
	"github.com/tidings-io/tidings/internal/source"
	"github.com/tidings-io/tidings/mirror"
)

// How the mirror comes to be as fresh as its cluster. A watch tells what has
// happened, and once a minute that nothing has. A reader who wants the newest
// state cannot wait for that, so the mirror asks:
//
//   - which version the cluster is at: a list of one object, metadata only, costs
//     it next to nothing. If the mirror has that version already, all is well.
//   - if not, either something has happened, and the watch is about to bring it, or
//     nothing has, which takes proof. There are two. A list of all metadata, that
//     holds the very versions the mirror has: what it costs grows with the number of
//     objects, but stays below what the list of the objects themselves would cost.
//     And a watch from the mirror's version that says, with a bookmark, that there
//     was nothing: it costs next to nothing, but an API server sends a bookmark
//     about two seconds before the end of a watch and looks once a second whether
//     to, so a watch of three seconds has it within one or two. Of few objects a
//     list is made; of many both, and the first to be there is taken. So nobody
//     waits for longer than the list would take that he asks for, and of very many
//     objects the list is broken off.
//
// There is no proof that is both quick and cheap. A streamed list (KEP-3157) of
// nothing has its bookmark at once, but it is one about that stream alone: what this
// mirror's own watch has yet to bring may be under way. No selector knows of
// versions, so no list or streamed list can be one of what has changed since. And
// bookmarks of other watches are due at most once a second.
//
// All readers who ask at a time share each of these requests.
const (
	// askByProof is the number of objects up to which the proof is as cheap as
	// the question.
	askByProof = 250
	// proofByList is the number of objects up to which a list is always quicker
	// than a watch: 5,000 pods' metadata take a kube-apiserver a tenth of a
	// second.
	proofByList = 10_000
	// proofSeconds is how long a watch for a bookmark lasts.
	proofSeconds = 3
	// watchGrace is the time the watch has to bring what a list has shown to
	// have happened, before it is looked again.
	watchGrace = 50 * time.Millisecond
	// freshPatience is how long the cluster may take to answer.
	freshPatience = 10 * time.Second
)

// metadata reads the metadata of what the informer holds off the cluster.
func (f *feed) metadata() (*source.Kube[*metav1.PartialObjectMetadata], error) {
	gvk := f.Resource().GVK()
	objects, err := codec.For[*metav1.PartialObjectMetadata](gvk, codec.Options{})
	if err != nil {
		return nil, err
	}
	return kube(f.Cluster(), source.Target{Resource: f.Resource().GVR(), Kind: gvk.Kind, Namespace: f.Namespace()}, objects), nil
}

// version is the resourceVersion the mirror has come to.
func (f *feed) version() uint64 {
	version, _ := f.Engine().Seen()
	return object.Version(version)
}

// newestVersion is the one that the cluster is at.
func (f *feed) newestVersion(ctx context.Context) (uint64, error) {
	if _, objects := f.Engine().Seen(); objects <= askByProof {
		return f.proofs.do(ctx)
	}
	return f.asks.do(ctx)
}

// reach waits until the mirror has a version that the cluster has.
func (f *feed) reach(ctx context.Context, version uint64) error {
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

// ask asks the cluster which version it is at.
func (f *feed) ask(ctx context.Context) (uint64, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, freshPatience, errWaited)
	defer cancel()
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

// prove tries to prove that nothing has happened since the mirror's newest state
// and tells the informer if so. It returns the newest version that it has seen
// the cluster at; if something has happened, that is not reached by itself.
func (f *feed) prove(ctx context.Context) (uint64, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, freshPatience, errWaited)
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

// errDiffers ends a watch that has shown that something has happened.
var errDiffers = errors.New("something has happened")

// errSilent is of a watch that has ended without a word.
var errSilent = &mirror.Error{Reason: mirror.Unreachable, Message: "the API server ended a watch without a bookmark", Retry: time.Second}

// proveByWatch looks for a bookmark.
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
			return errDiffers // or at least there is no more to learn
		})
	switch {
	case err == nil:
		return 0, errSilent
	case !errors.Is(err, errDiffers):
		return 0, f.Cluster().Upstream("", err)
	}
	f.Engine().Confirm(view, version)
	return object.Version(version), nil
}

// proveByList compares all there is.
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
		f.Engine().Confirm(view, result.ResourceVersion)
	}
	return object.Version(result.ResourceVersion), nil
}
