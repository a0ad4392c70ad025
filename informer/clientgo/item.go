package clientgo

import (
	"strings"
	"unsafe"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/tidings-io/tidings/internal/object"
)

// item is what the engine keeps: anything at all, under a key that a KeyFunc made
// of it. It has no version and no uid of its own, because client-go's stores look
// at neither: what comes is kept.
//
// Nearly all objects have namespace/name for a key. They are kept as they are,
// without one: it is in the store already.
type item struct {
	held any // an object, or a *keyed
}

// keyed is an object with a key that it does not tell itself.
type keyed struct {
	key string
	obj any
}

// itemOf makes an item of an object and its key.
func itemOf(key string, obj any) item {
	if o, ok := obj.(metav1.Object); ok && isNamed(o, key) {
		return item{obj}
	}
	return item{&keyed{key, obj}}
}

// informed makes an item of what an informer is told of, whose key is that of
// cache.DeletionHandlingMetaNamespaceKeyFunc.
func informed(obj any) (item, error) {
	if _, ok := obj.(metav1.Object); ok {
		return item{obj}, nil
	}
	key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj)
	if err != nil {
		return item{}, cache.KeyError{Obj: obj, Err: err}
	}
	return item{&keyed{key, obj}}, nil
}

// isNamed says that key is the namespace/name of o, without making it.
func isNamed(o metav1.Object, key string) bool {
	name := key
	if namespace := o.GetNamespace(); namespace != "" {
		rest, ok := strings.CutPrefix(key, namespace)
		if !ok || rest == "" || rest[0] != '/' {
			return false
		}
		name = rest[1:]
	}
	return name == o.GetName()
}

// obj is what was put in.
func (i item) obj() any {
	if k, ok := i.held.(*keyed); ok {
		return k.obj
	}
	return i.held
}

// objects makes of items what was put in, in their place: an item is nothing but
// one value.
func objects(items []item) []any {
	out := unsafe.Slice((*any)(unsafe.Pointer(unsafe.SliceData(items))), len(items))
	for i := range out {
		if k, ok := out[i].(*keyed); ok {
			out[i] = k.obj
		}
	}
	return out
}

func (i item) key() string { return object.Key(i.GetNamespace(), i.GetName()) }

func (i item) GetNamespace() string {
	if o, ok := i.held.(metav1.Object); ok {
		return o.GetNamespace()
	}
	return ""
}

func (i item) GetName() string {
	switch held := i.held.(type) {
	case *keyed:
		return held.key
	case metav1.Object:
		return held.GetName()
	}
	return ""
}

func (i item) GetUID() types.UID            { return "" }
func (i item) GetResourceVersion() string   { return "" }
func (i item) GetLabels() map[string]string { return nil }
