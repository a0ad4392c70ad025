package informer

import (
	"fmt"

	"github.com/tidings-io/tidings/internal/object"
)

// Confirm tells the informer what its owner has learnt elsewhere: that nothing
// happened to what it mirrors between the state of v and resourceVersion. The
// informer takes it for a bookmark of that version, so that [Informer.WaitFor]
// returns. It does nothing, and returns false, if v is not the newest state any
// more, or resourceVersion is no decimal number.
func (inf *Informer[T]) Confirm(v *View[T], resourceVersion string) bool {
	version := object.Version(resourceVersion)
	return version != 0 && inf.engine.confirm(v.pinned, version)
}

// ViewBefore returns the newest state, to be released, and what was different
// at an earlier resourceVersion: for each object that has come, changed or gone
// since, by its [Key], what it was then; nothing, if it was not there. If the
// window kept by [Retain] does not reach back that far, or does not tell the
// version apart from others, the error is [ErrExpired].
func (inf *Informer[T]) ViewBefore(resourceVersion string) (*View[T], map[string]T, error) {
	version := object.Version(resourceVersion)
	if version == 0 {
		return nil, nil, fmt.Errorf("%w, not %q", ErrVersion, resourceVersion)
	}
	v, before, ok := inf.engine.pinSince(version)
	if !ok {
		return nil, nil, fmt.Errorf("%s: the state at %s: %w", inf.target(), resourceVersion, ErrExpired)
	}
	return &View[T]{v}, before, nil
}

// Seen is what [Informer.Status] says of the resourceVersion and the number of
// objects, for who asks often.
func (inf *Informer[T]) Seen() (resourceVersion string, objects int) {
	latest := inf.engine.latest()
	return Event[T]{version: latest.resourceVersion}.ResourceVersion(), latest.objects
}
