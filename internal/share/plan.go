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

// plan is how to decode messages of a Go type: what each field number is and
// where in the struct it goes. It is read off the struct tags that Kubernetes'
// generator of protobuf writes beside the code that it generates:
//
//	Name string `json:"name" protobuf:"bytes,1,opt,name=name"`
type plan struct {
	species
	fields []field // by number; see wNone
	// own says that the tags do not tell all: the type's own Unmarshal decodes.
	own bool
	// restless is that of [shape], of a type that is decoded by its own Unmarshal
	// or of Quantity.
	restless bool
}

// species tells equal encodings of different things apart.
type species struct {
	salt uint64
	typ  reflect.Type // a message's, slice's or map's; nil for what is no candidate
}

// what is the kind of a field.
type what uint8

const (
	wNone what = iota // no field has this number
	wString
	wUnique // a string that no other object has
	wBytes
	wBool
	wInt32
	wInt64
	wMessage
	wPointer // to a message or a scalar
	wStrings
	wInt32s
	wInt64s
	wMessages
	wMap
)

// field is what there is to know of one field of a message.
type field struct {
	what     what
	wire     uint8
	offset   uintptr
	elem     *plan     // of messages: the field's, its elements', or of a map its values'
	*species           // of what is remembered by the field, rather than by elem
	rows     *rows     // of slices
	scalar   what      // of numbers behind pointers and in slices
	values   mapValues // of maps
	// managed says that the field is metadata.managedFields.
	managed bool
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

// ownMessage is what generated types have.
type ownMessage interface{ Unmarshal([]byte) error }

var (
	messageType    = reflect.TypeFor[ownMessage]()
	typeMetaType   = reflect.TypeFor[metav1.TypeMeta]()
	objectMetaType = reflect.TypeFor[metav1.ObjectMeta]()

	plans   sync.Map // reflect.Type → *plan
	plansMu sync.Mutex

	textSpecies  = &species{salt: 0x9e3779b97f4a7c15}
	bytesSpecies = &species{salt: 0xc2b2ae3d27d4eb4f}
)

// planFor is the plan of a type, worked out once: like [shapeOf], this is the
// program's type information in another form.
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

// trusted says whether a type's tags can be trusted: those of Kubernetes' own
// modules, all of which are tested. Somebody else's Unmarshal may do anything.
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
	p := &plan{species: species{salt(t, "message"), t}}
	making[t] = p
	if t.Kind() != reflect.Struct || !trusted(t) || !p.read(t, making) {
		p.own, p.fields, p.restless = true, nil, isRestless(t, map[reflect.Type]bool{})
	}
	return p
}

// read fills the plan from the tags, and reports false if they do not tell all.
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
				f.what = wUnique
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

// fieldOf is what a field of type t is.
func fieldOf(t reflect.Type, making map[reflect.Type]*plan) (f field, ok bool) {
	f.wire = wireBytes
	if isMessage(t) {
		f.what, f.elem = wMessage, makePlan(t, making)
		return f, true
	}
	switch t.Kind() {
	case reflect.String:
		f.what = wString
	case reflect.Bool:
		f.what, f.wire = wBool, wireVarint
	case reflect.Int32:
		f.what, f.wire = wInt32, wireVarint
	case reflect.Int64:
		f.what, f.wire = wInt64, wireVarint
	case reflect.Pointer:
		f.what = wPointer
		if isMessage(t.Elem()) {
			f.elem = makePlan(t.Elem(), making)
			return f, true
		}
		scalar, ok := fieldOf(t.Elem(), making)
		switch {
		case !ok:
			return f, false
		case scalar.what != wString && scalar.wire != wireVarint, scalar.what > wInt64:
			return f, false
		}
		f.scalar, f.wire, f.species = scalar.what, scalar.wire, speciesOf(t, "pointer")
	case reflect.Slice:
		f.species, f.rows = speciesOf(t, "run"), &rows{of: t.Elem()}
		switch {
		case t.Elem().Kind() == reflect.Uint8:
			f.what = wBytes
		case isMessage(t.Elem()):
			f.what, f.elem = wMessages, makePlan(t.Elem(), making)
		case t.Elem().Kind() == reflect.String:
			f.what = wStrings
		case t.Elem().Kind() == reflect.Int32:
			f.what, f.wire, f.scalar = wInt32s, wireVarint, wInt32
		case t.Elem().Kind() == reflect.Int64:
			f.what, f.wire, f.scalar = wInt64s, wireVarint, wInt64
		default:
			return f, false
		}
	case reflect.Map:
		f.what, f.species = wMap, speciesOf(t, "map")
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

// speciesOf is the species of what fields of type t hold. It is called under
// plansMu.
func speciesOf(t reflect.Type, as string) *species {
	key := speciesKey{t, as}
	s := allSpecies[key]
	if s == nil {
		s = &species{salt(t, as), t}
		allSpecies[key] = s
	}
	return s
}

type speciesKey struct {
	t  reflect.Type
	as string
}

var allSpecies = map[speciesKey]*species{}

// isRestless says whether memory of a type holds a Quantity that its readers
// may write to. Those in maps are copied by whoever reads them.
func isRestless(t reflect.Type, seen map[reflect.Type]bool) bool {
	if t == quantityType {
		return true
	}
	if seen[t] {
		return false
	}
	seen[t] = true
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array:
		return isRestless(t.Elem(), seen)
	case reflect.Struct:
		for i := range t.NumField() {
			if isRestless(t.Field(i).Type, seen) {
				return true
			}
		}
	}
	return false
}

// rows makes arrays of a type, of the exact length.
type rows struct {
	of    reflect.Type
	types [16]atomic.Pointer[reflect.Type] // of the short ones, by length
}

func (r *rows) make(n int) unsafe.Pointer {
	if n >= len(r.types) {
		return reflect.MakeSlice(reflect.SliceOf(r.of), n, n).UnsafePointer()
	}
	t := r.types[n].Load()
	if t == nil {
		array := reflect.ArrayOf(n, r.of)
		t = &array
		r.types[n].Store(t)
	}
	return reflect.New(*t).UnsafePointer()
}
