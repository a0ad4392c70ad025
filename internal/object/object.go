// Package object defines what the engine needs to know about the objects it
// stores, and how it identifies them.
package object

import (
	"hash/maphash"
	"strconv"

	"k8s.io/apimachinery/pkg/types"
)

// Object is the part of the metadata of a Kubernetes object that the engine
// reads. Every Kubernetes API type implements it.
type Object interface {
	GetNamespace() string
	GetName() string
	GetUID() types.UID
	GetResourceVersion() string
	GetLabels() map[string]string
}

// Identity identifies one version of one object.
type Identity struct {
	Namespace, Name, UID, ResourceVersion string
}

// Key returns the key of an object in a store: namespace/name, or the name
// alone if the namespace is empty. Keys sort in etcd's order.
func Key(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "/" + name
}

// Version parses a resourceVersion, which KEP-5504 defines as a decimal number.
// It returns 0, which means not comparable, for anything else.
func Version(resourceVersion string) uint64 {
	// Parsed by hand: it runs several times per event, and strconv allocates an
	// error for each version that is not a number.
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

// OwnerHash returns the hash under which an index of owners has a uid. It is the same
// in all of the process, and in no other.
func OwnerHash(uid string) uint64 { return maphash.String(ownerSeed, uid) }

var ownerSeed = maphash.MakeSeed()
