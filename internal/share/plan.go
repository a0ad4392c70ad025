package share

import (
	"hash/maphash"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// plan tells how to decode messages of a Go type: the kind of each field number and
// its offset in the struct. It is read from the struct tags that Kubernetes'
// protobuf generator writes along with its code:
//
//	Name string `json:"name" protobuf:"bytes,1,opt,name=name"`
type plan struct {
	partType
	fields []field // by number; kindNone for unused ones
	// custom is set if the tags are not the whole truth. The type's own Unmarshal
	// decodes.
	custom bool
	// mutable is shape.mutable of a type with custom set.
	mutable bool
}

// partType distinguishes equal encodings of different types.
type partType struct {
	salt uint64
	typ  reflect.Type // of a message, slice or map; nil if it is never a candidate
}

// fieldKind is the kind of a field.
type fieldKind uint8

const (
	kindNone fieldKind = iota // no field has this number
	kindString
	kindUnique // a string that differs between all objects
	kindBytes
	kindBool
	kindInt32
	kindInt64
	kindMessage
	kindPointer // to a message or a scalar
	kindStrings
	kindInt32s
	kindInt64s
	kindMessages
	kindMap
)

// field describes one field of a message.
type field struct {
	kind      fieldKind
	wire      uint8
	offset    uintptr
	elem      *plan      // of a message, of the elements of a slice, or of the values of a map
	*partType            // of parts that are looked up by field, not by elem
	arrays    *arrayType // of slices
	scalar    fieldKind  // of numbers behind pointers and in slices
	values    mapValues  // of maps
	managed   bool       // the field is metadata.managedFields
}

type mapValues uint8

const (
	ofStrings mapValues = iota
	ofBytes
	ofQuantities
)

const (
	wireVarint  = 0
	wireFixed64 = 1
	wireBytes   = 2
	wireFixed32 = 5
)

// unmarshaler is implemented by the generated types.
type unmarshaler interface{ Unmarshal([]byte) error }

var (
	messageType    = reflect.TypeFor[unmarshaler]()
	typeMetaType   = reflect.TypeFor[metav1.TypeMeta]()
	objectMetaType = reflect.TypeFor[metav1.ObjectMeta]()

	plans   sync.Map // reflect.Type → *plan
	plansMu sync.Mutex

	stringPart = &partType{salt: 0x9e3779b97f4a7c15}
	bytesPart  = &partType{salt: 0xc2b2ae3d27d4eb4f}
)

// planFor returns the plan of a type. It is computed once for each type: like the
// shapes, plans are type information.
func planFor(t reflect.Type) *plan {
	if p, ok := plans.Load(t); ok {
		return p.(*plan)
	}
	plansMu.Lock()
	defer plansMu.Unlock()
	making := map[reflect.Type]*plan{}
	p := makePlan(t, making)
	for t, p := range making {
		plans.LoadOrStore(t, p)
	}
	return p
}

// trusted reports whether a type's tags can be relied on: those of Kubernetes' own
// modules, which are all tested. The Unmarshal of other types may do anything.
func trusted(t reflect.Type) bool {
	path := t.PkgPath()
	return strings.HasPrefix(path, "k8s.io/api/") || path == "k8s.io/apimachinery/pkg/apis/meta/v1" || path == "k8s.io/apimachinery/pkg/util/intstr"
}

func makePlan(t reflect.Type, making map[reflect.Type]*plan) *plan {
	if p, ok := plans.Load(t); ok {
		return p.(*plan)
	}
	if p, ok := making[t]; ok {
		return p
	}
	p := &plan{partType: partType{salt(t, "message"), t}}
	making[t] = p
	if t.Kind() != reflect.Struct || !trusted(t) || !p.read(t, making) {
		p.custom, p.fields, p.mutable = true, nil, holdsMutable(t, map[reflect.Type]bool{})
	}
	return p
}

// read fills the plan from the tags. It returns false if they do not suffice.
func (p *plan) read(t reflect.Type, making map[reflect.Type]*plan) bool {
	for i := range t.NumField() {
		sf := t.Field(i)
		if sf.Type == typeMetaType {
			continue // not on the wire
		}
		words := strings.Split(sf.Tag.Get("protobuf"), ",")
		if len(words) < 2 || !sf.IsExported() {
			return false
		}
		number, err := strconv.Atoi(words[1])
		if err != nil || number < 1 || number > 1000 {
			return false
		}
		f, ok := fieldOf(sf.Type, making)
		if !ok {
			return false
		}
		f.offset = sf.Offset
		if t == objectMetaType {
			switch sf.Name {
			case "Name", "UID", "ResourceVersion":
				f.kind = kindUnique
			case "ManagedFields":
				f.managed = true
			}
		}
		for len(p.fields) <= number {
			p.fields = append(p.fields, field{})
		}
		p.fields[number] = f
	}
	return len(p.fields) > 0
}

// fieldOf describes a field of type t.
func fieldOf(t reflect.Type, making map[reflect.Type]*plan) (f field, ok bool) {
	f.wire = wireBytes
	if isMessage(t) {
		f.kind, f.elem = kindMessage, makePlan(t, making)
		return f, true
	}
	switch t.Kind() {
	case reflect.String:
		f.kind = kindString
	case reflect.Bool:
		f.kind, f.wire = kindBool, wireVarint
	case reflect.Int32:
		f.kind, f.wire = kindInt32, wireVarint
	case reflect.Int64:
		f.kind, f.wire = kindInt64, wireVarint
	case reflect.Pointer:
		f.kind = kindPointer
		if isMessage(t.Elem()) {
			f.elem = makePlan(t.Elem(), making)
			return f, true
		}
		scalar, ok := fieldOf(t.Elem(), making)
		switch {
		case !ok:
			return f, false
		case scalar.kind != kindString && scalar.wire != wireVarint, scalar.kind > kindInt64:
			return f, false
		}
		f.scalar, f.wire, f.partType = scalar.kind, scalar.wire, partTypeOf(t, "pointer")
	case reflect.Slice:
		f.partType, f.arrays = partTypeOf(t, "run"), &arrayType{of: t.Elem()}
		switch {
		case t.Elem().Kind() == reflect.Uint8:
			f.kind = kindBytes
		case isMessage(t.Elem()):
			f.kind, f.elem = kindMessages, makePlan(t.Elem(), making)
		case t.Elem().Kind() == reflect.String:
			f.kind = kindStrings
		case t.Elem().Kind() == reflect.Int32:
			f.kind, f.wire, f.scalar = kindInt32s, wireVarint, kindInt32
		case t.Elem().Kind() == reflect.Int64:
			f.kind, f.wire, f.scalar = kindInt64s, wireVarint, kindInt64
		default:
			return f, false
		}
	case reflect.Map:
		f.kind, f.partType = kindMap, partTypeOf(t, "map")
		switch e := t.Elem(); {
		case t.Key().Kind() != reflect.String:
			return f, false
		case e == quantityType:
			f.values, f.elem = ofQuantities, makePlan(e, making)
		case isMessage(e):
			return f, false
		case e.Kind() == reflect.String:
			f.values = ofStrings
		case e.Kind() == reflect.Slice && e.Elem().Kind() == reflect.Uint8:
			f.values = ofBytes
		default:
			return f, false
		}
	default:
		return f, false
	}
	return f, true
}

func isMessage(t reflect.Type) bool {
	return t.Kind() != reflect.Pointer && reflect.PointerTo(t).Implements(messageType)
}

func salt(t reflect.Type, as string) uint64 {
	return maphash.String(salts, as+" "+t.PkgPath()+"."+t.String())
}

// partTypeOf returns the part type of fields of type t. The caller holds plansMu.
func partTypeOf(t reflect.Type, as string) *partType {
	key := partTypeKey{t, as}
	s := partTypes[key]
	if s == nil {
		s = &partType{salt(t, as), t}
		partTypes[key] = s
	}
	return s
}

type partTypeKey struct {
	t  reflect.Type
	as string
}

var partTypes = map[partTypeKey]*partType{}

// holdsMutable reports whether memory of a type holds a Quantity, which is written
// to by its readers. Those in maps do not count: a read from a map copies them.
func holdsMutable(t reflect.Type, seen map[reflect.Type]bool) bool {
	if t == quantityType {
		return true
	}
	if seen[t] {
		return false
	}
	seen[t] = true
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array:
		return holdsMutable(t.Elem(), seen)
	case reflect.Struct:
		for i := range t.NumField() {
			if holdsMutable(t.Field(i).Type, seen) {
				return true
			}
		}
	}
	return false
}

// arrayType makes arrays of exact length.
type arrayType struct {
	of    reflect.Type
	types [16]atomic.Pointer[reflect.Type] // of short arrays, by length
}

func (a *arrayType) make(n int) unsafe.Pointer {
	if n >= len(a.types) {
		return reflect.MakeSlice(reflect.SliceOf(a.of), n, n).UnsafePointer()
	}
	t := a.types[n].Load()
	if t == nil {
		array := reflect.ArrayOf(n, a.of)
		t = &array
		a.types[n].Store(t)
	}
	return reflect.New(*t).UnsafePointer()
}
