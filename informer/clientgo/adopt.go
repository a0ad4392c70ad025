package clientgo

import (
	"fmt"

	"k8s.io/client-go/tools/cache"

	"github.com/tidings-io/tidings/informer/clientgo/internal/adopt"
)

// Adopt returns an informer of ours in the place of one of client-go's, with the
// same source, object type, indexes, resync period, transform and error handler.
// It is for informers that generated code makes, which calls client-go's
// constructors:
//
//	inf, err := clientgo.Adopt(crdinformers.NewFooInformer(client, namespace, resync, indexers))
//
// The informer must not have been started and must have no handlers; it is good
// for nothing afterwards. One of ours is returned as it is. The error says what
// is in the way, which may be a version of client-go that this package does not
// know; then the informer is still good.
func Adopt(informer cache.SharedIndexInformer) (cache.SharedIndexInformer, error) {
	if ours, ok := informer.(*sharedIndexInformer); ok {
		return ours, nil
	}
	parts, err := adopt.Of(informer)
	if err != nil {
		return nil, fmt.Errorf("adopt an informer: %w", err)
	}
	inf := NewSharedIndexInformerWithOptions(parts.ListerWatcher, parts.Example, parts.Options)
	if parts.Transform != nil {
		_ = inf.SetTransform(parts.Transform) // cannot fail: it has not been started
	}
	if parts.ErrorHandler != nil {
		_ = inf.SetWatchErrorHandlerWithContext(parts.ErrorHandler)
	}
	return inf, nil
}
