package clientgo

import (
	"fmt"

	"k8s.io/client-go/tools/cache"

	"github.com/tidings-io/tidings/informer/clientgo/internal/unexported"
)

// Adopt returns an informer of this package that replaces one of client-go's.
// It has the same source, object type, indexes, resync period, transform and
// error handler. Use it for informers made by generated code, which calls
// client-go's constructors:
//
//	inf, err := clientgo.Adopt(crdinformers.NewFooInformer(client, namespace, resync, indexers))
//
// The informer must not have been started and must have no handlers, and must
// not be used afterwards. An informer of this package is returned unchanged. An
// error says what prevents the replacement, for example a version of client-go
// that this package does not know; the informer can then still be used.
func Adopt(informer cache.SharedIndexInformer) (cache.SharedIndexInformer, error) {
	if ours, ok := informer.(*sharedIndexInformer); ok {
		return ours, nil
	}
	config, err := unexported.ConfigOf(informer)
	if err != nil {
		return nil, fmt.Errorf("adopt an informer: %w", err)
	}
	inf := NewSharedIndexInformerWithOptions(config.ListerWatcher, config.Example, config.Options)
	if config.Transform != nil {
		_ = inf.SetTransform(config.Transform) // cannot fail: not started yet
	}
	if config.ErrorHandler != nil {
		_ = inf.SetWatchErrorHandlerWithContext(config.ErrorHandler)
	}
	return inf, nil
}
