package clientgo

import (
	"iter"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/tidings-io/tidings/internal/indexer"
	"github.com/tidings-io/tidings/internal/object"
)

// item is an object in the engine's store, with the key that a KeyFunc made for
// it. The object can be of any type. The item reports no version and no uid,
// because client-go's stores look at neither and accept every write.
//
// Nearly all objects have the key namespace/name. For these the item holds the
// object alone: the key is already in the store.
type item struct {
	held any // an object, or a *keyed
}

// keyed is an object whose key is not its namespace/name.
type keyed struct {
	key string
	obj any
}

// newItem returns the item of an object and its key.
func newItem(key string, obj any) item {
	if o, ok := obj.(metav1.Object); ok && isNamed(o, key) {
		return item{obj}
	}
	return item{&keyed{key, obj}}
}

// newInformerItem returns the item of an object that an informer received. Its
// key is that of cache.DeletionHandlingMetaNamespaceKeyFunc.
func newInformerItem(obj any) (item, error) {
	if _, ok := obj.(metav1.Object); ok {
		return item{obj}, nil
	}
	key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj)
	if err != nil {
		return item{}, cache.KeyError{Obj: obj, Err: err}
	}
	return item{&keyed{key, obj}}, nil
}

// isNamed reports whether key is the namespace/name of o, without allocating
// that.
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

// obj returns the object.
func (i item) obj() any {
	if k, ok := i.held.(*keyed); ok {
		return k.obj
	}
	return i.held
}

// appendObjects appends the objects of items to dst.
func appendObjects(dst []any, windows iter.Seq[indexer.Window[item]]) []any {
	for items := range windows {
		for i := range items.Len() {
			dst = append(dst, items.At(i).obj())
		}
	}
	return dst
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
