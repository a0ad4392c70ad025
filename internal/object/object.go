// Package object says what the engine must know of the things it keeps, and
// how it names them.
package object

import (
	"strconv"

	"k8s.io/apimachinery/pkg/types"
)

// Object is what every Kubernetes API type can tell of itself.
type Object interface {
	GetNamespace() string
	GetName() string
	GetUID() types.UID
	GetResourceVersion() string
	GetLabels() map[string]string
}

// Key is the name of an object in a store: namespace/name, or the name alone
// where there is no namespace. The order of keys is etcd's.
func Key(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "/" + name
}

// Version reads a resourceVersion, which KEP-5504 promises to be a decimal
// number. Anything else is 0: not comparable.
func Version(resourceVersion string) uint64 {
	v, err := strconv.ParseUint(resourceVersion, 10, 64)
	if err != nil {
		return 0
	}
	return v
}
