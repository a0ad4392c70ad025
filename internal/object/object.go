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
	// By hand: it is done several times for each event, and strconv makes an
	// error of every version that is none.
	if len(resourceVersion) > len("18446744073709551615")-1 {
		v, err := strconv.ParseUint(resourceVersion, 10, 64)
		if err != nil {
			return 0
		}
		return v
	}
	var v uint64
	for i := range len(resourceVersion) {
		digit := resourceVersion[i] - '0'
		if digit > 9 {
			return 0
		}
		v = v*10 + uint64(digit)
	}
	return v
}
