package kubeapi

import (
	"bytes"
	"encoding/binary"
	"strconv"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/tidings-io/tidings/cmd/tidings/internal/read"
)

// wrap returns the frame of an event with an encoded object: JSON, or protobuf in its
// envelope.
func (f form) wrap(event string, content []byte) []byte {
	if f.media != asProtobuf {
		out := make([]byte, 0, len(content)+len(event)+24)
		out = append(append(append(out, `{"type":"`...), event...), `","object":`...)
		return append(append(out, content...), "}\n"...)
	}
	var object []byte // runtime.RawExtension
	object = protowire.AppendBytes(protowire.AppendTag(object, 1, protowire.BytesType), content)
	out := make([]byte, 4, len(object)+len(event)+16)
	out = protowire.AppendString(protowire.AppendTag(out, 1, protowire.BytesType), event)
	out = protowire.AppendBytes(protowire.AppendTag(out, 2, protowire.BytesType), object)
	binary.BigEndian.PutUint32(out, uint32(len(out)-4))
	return out
}

// frame returns the frame of an event about an object, for a watch without Tables.
func (w *watch) frame(event string, o *read.Object) ([]byte, error) {
	content, err := w.encoding(o, w.kind, w.form)
	if err != nil {
		return nil, err
	}
	if w.form.media == asProtobuf {
		kind, apiVersion := w.form.object(w.kind)
		content = envelope(kind, apiVersion, content)
	}
	return w.form.wrap(event, content), nil
}

// tableFrame returns the frame of an event about an object as a Table. The first frame of
// a watch has the columns: the caller holds out.mu until it has sent the frame.
func (w *watch) tableFrame(event string, o *read.Object) ([]byte, error) {
	content, err := w.tables.table(metav1.ListMeta{ResourceVersion: o.GetResourceVersion()}, []*read.Object{o}, !w.columnsSent)
	if err != nil {
		return nil, err
	}
	w.columnsSent = true
	return w.form.wrap(event, content), nil
}

// statusFrame returns the frame of an error.
func (w *watch) statusFrame(s *metav1.Status) ([]byte, error) {
	if w.form.media != asProtobuf {
		return w.form.wrap("ERROR", marshal(s)), nil
	}
	content, err := s.Marshal()
	if err != nil {
		return nil, err
	}
	return w.form.wrap("ERROR", envelope("Status", "v1", content)), nil
}

// bookmarkFrame returns the frame of a bookmark: an object of the kind that has nothing
// but a version.
func (w *watch) bookmarkFrame(version uint64, initialEnd bool) ([]byte, error) {
	m := metav1.ObjectMeta{ResourceVersion: strconv.FormatUint(version, 10)}
	if initialEnd {
		m.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	}
	k := w.kind
	switch {
	case w.form.content == metadata:
		o := &metav1.PartialObjectMetadata{ObjectMeta: m}
		if w.form.media == asProtobuf {
			return w.protobufFrame("BOOKMARK", o)
		}
		o.Kind, o.APIVersion = "PartialObjectMetadata", w.form.group()
		return w.form.wrap("BOOKMARK", marshal(o)), nil
	case w.form.content == table:
		return w.bookmarkTable(m)
	case !k.typed && !k.custom:
		out := append(bytes.Clone(k.head), `"metadata":`...)
		return w.form.wrap("BOOKMARK", append(append(out, marshal(m)...), emptyKinds[k.gvk.Kind]...)), nil
	case !k.typed:
		about := map[string]any{"resourceVersion": m.ResourceVersion}
		if m.Annotations != nil {
			about["annotations"] = m.Annotations
		}
		return w.form.wrap("BOOKMARK", marshal(map[string]any{"apiVersion": k.gvk.GroupVersion().String(), "kind": k.gvk.Kind, "metadata": about})), nil
	}
	o, err := scheme.Scheme.New(k.gvk)
	if err != nil {
		return nil, err
	}
	accessor := o.(metav1.Object) // every kind that can be watched is one
	accessor.SetResourceVersion(m.ResourceVersion)
	accessor.SetAnnotations(m.Annotations)
	// In kube-apiserver's internal types these are numbers, not pointers.
	var none int32
	switch o := o.(type) {
	case *corev1.ReplicationController:
		o.Spec.Replicas = &none
	case *appsv1.Deployment:
		o.Spec.Replicas = &none
	case *appsv1.ReplicaSet:
		o.Spec.Replicas = &none
	case *appsv1.StatefulSet:
		o.Spec.Replicas = &none
	}
	if w.form.media == asProtobuf {
		return w.protobufFrame("BOOKMARK", o)
	}
	o.GetObjectKind().SetGroupVersionKind(k.gvk)
	return w.form.wrap("BOOKMARK", marshal(o)), nil
}

// emptyKinds is the JSON after the metadata of empty objects, for the built-in kinds
// without a Go type in this program.
var emptyKinds = map[string]string{
	"CustomResourceDefinition": `,"spec":{"group":"","names":{"plural":"","kind":""},"scope":"","versions":null},"status":{"conditions":null,"acceptedNames":{"plural":"","kind":""},"storedVersions":null}}`,
	"APIService":               `,"spec":{"groupPriorityMinimum":0,"versionPriority":0},"status":{}}`,
}

func (w *watch) protobufFrame(event string, o runtime.Object) ([]byte, error) {
	content, err := protobufOfTyped(o)
	if err != nil {
		return nil, err
	}
	kind, apiVersion := w.form.object(w.kind)
	return w.form.wrap(event, envelope(kind, apiVersion, content)), nil
}

// bookmarkTable returns the frame of a bookmark as a Table: its only row has the object.
// The caller holds out.mu, as for tableFrame.
func (w *watch) bookmarkTable(m metav1.ObjectMeta) ([]byte, error) {
	o := metav1.PartialObjectMetadata{ObjectMeta: m}
	o.Kind, o.APIVersion = "PartialObjectMetadata", w.form.group()
	if w.form.include == metav1.IncludeObject {
		o.Kind, o.APIVersion = w.kind.gvk.Kind, w.kind.gvk.GroupVersion().String()
	}
	content := marshal(o)
	cells, err := w.tables.Cells(content, time.Now())
	if err != nil {
		return nil, err
	}
	out := metav1.Table{ListMeta: metav1.ListMeta{ResourceVersion: m.ResourceVersion}, Rows: []metav1.TableRow{{Cells: cells}}}
	out.Kind, out.APIVersion = "Table", w.form.group()
	if w.form.include != metav1.IncludeNone || m.Annotations != nil {
		out.Rows[0].Object.Raw = content
	}
	if !w.columnsSent {
		out.ColumnDefinitions, w.columnsSent = w.tables.Columns(), true
	}
	return w.form.wrap("BOOKMARK", marshal(out)), nil
}
