package informer

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tidings-io/tidings/internal/codec"
	"github.com/tidings-io/tidings/internal/object"
)

// owned is implemented by all objects but encoded ones.
type owned interface {
	GetOwnerReferences() []metav1.OwnerReference
}

// appendOwners appends to dst the hashes of the uids of an object's owners.
func appendOwners(dst []uint64, held Object) []uint64 {
	switch o := held.(type) {
	case *codec.Raw:
		return o.AppendOwners(dst)
	case owned:
		for _, owner := range o.GetOwnerReferences() {
			dst = append(dst, object.OwnerHash(string(owner.UID)))
		}
	}
	return dst
}

// hasOwner reports whether an object names an owner with the given uid.
func hasOwner(held Object, uid types.UID) bool {
	switch o := held.(type) {
	case *codec.Raw:
		return o.HasOwner(uid)
	case owned:
		return slices.ContainsFunc(o.GetOwnerReferences(), func(owner metav1.OwnerReference) bool { return owner.UID == uid })
	}
	return false
}
