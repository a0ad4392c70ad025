package source_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/tidings-io/tidings/internal/codec"
	"github.com/tidings-io/tidings/internal/source"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	configMap  = corev1.SchemeGroupVersion.WithKind("ConfigMap")
	configMaps = source.Target{Cluster: "test", Resource: corev1.SchemeGroupVersion.WithResource("configmaps"), Kind: "ConfigMap"}
	nowhere    = &url.URL{Scheme: "http", Host: "server.invalid"}
	codecs     = serializer.NewCodecFactory(scheme.Scheme)
)

// wire is one of the encodings that API servers answer in, written by their
// own serializers.
type wire struct {
	name        string
	contentType string
	metadata    bool // objects are PartialObjectMetadata
	keeps       []representation
}

var wires = []wire{
	{"json", "application/json", false, []representation{typed, dynamic, raw, metadata}},
	{"protobuf", "application/vnd.kubernetes.protobuf", false, []representation{typed}},
	{"metadata json", "application/json", true, []representation{metadata}},
	{"metadata protobuf", "application/vnd.kubernetes.protobuf", true, []representation{metadata}},
}

func (w wire) info() runtime.SerializerInfo {
	info, ok := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), w.contentType)
	if !ok {
		panic(w.contentType)
	}
	return info
}

func (w wire) encode(obj runtime.Object) []byte {
	var b bytes.Buffer
	if err := w.info().Serializer.Encode(obj, &b); err != nil {
		panic(err)
	}
	return b.Bytes()
}

// list is the body of a list; the items carry no kind, as on the wire.
func (w wire) list(meta metav1.ListMeta, items ...corev1.ConfigMap) []byte {
	if !w.metadata {
		return w.encode(&corev1.ConfigMapList{TypeMeta: metav1.TypeMeta{Kind: "ConfigMapList", APIVersion: "v1"}, ListMeta: meta, Items: items})
	}
	out := &metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{Kind: "PartialObjectMetadataList", APIVersion: "meta.k8s.io/v1"}, ListMeta: meta}
	for _, item := range items {
		out.Items = append(out.Items, metav1.PartialObjectMetadata{ObjectMeta: item.ObjectMeta})
	}
	return w.encode(out)
}

// single is an object as it travels alone.
func (w wire) single(cm corev1.ConfigMap) runtime.Object {
	if w.metadata {
		return &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{Kind: "PartialObjectMetadata", APIVersion: "meta.k8s.io/v1"}, ObjectMeta: cm.ObjectMeta}
	}
	cm.TypeMeta = metav1.TypeMeta{Kind: "ConfigMap", APIVersion: "v1"}
	return &cm
}

// frame is one event of a watch.
func (w wire) frame(kind string, obj runtime.Object) []byte {
	var b bytes.Buffer
	stream := w.info().StreamSerializer
	event := &metav1.WatchEvent{Type: kind, Object: runtime.RawExtension{Raw: w.encode(obj)}}
	if err := stream.Serializer.Encode(event, stream.Framer.NewFrameWriter(&b)); err != nil {
		panic(err)
	}
	return b.Bytes()
}

func (w wire) bookmark(version string, annotations map[string]string) []byte {
	return w.frame("BOOKMARK", w.single(corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{ResourceVersion: version, Annotations: annotations}}))
}

// makeConfigMap makes the i-th of some config maps.
func makeConfigMap(i int) corev1.ConfigMap {
	return corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: fmt.Sprintf("cm-%d", i), UID: types.UID(fmt.Sprintf("uid-%d", i)), ResourceVersion: fmt.Sprint(100 + i),
			CreationTimestamp: metav1.NewTime(time.Unix(1700000000, 0)), Labels: map[string]string{"i": fmt.Sprint(i)},
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "test", Operation: metav1.ManagedFieldsOperationApply}},
		},
		Data: map[string]string{"text": "“quoted”\n\x00 </html>", "i": fmt.Sprint(i)},
	}
}

// representation is what objects are kept as, brought to a common form.
type representation struct {
	name  string
	list  func(context.Context, http.RoundTripper, source.Target, source.ListOptions) ([]kept, source.ListResult, error)
	watch func(context.Context, http.RoundTripper, source.Target, source.WatchOptions) ([]source.Event[kept], error)
}

// kept is an object as JSON would have it.
type kept map[string]any

var (
	typed    = represent[*corev1.ConfigMap]("typed")
	dynamic  = represent[*unstructured.Unstructured]("unstructured")
	metadata = represent[*metav1.PartialObjectMetadata]("metadata")
	raw      = represent[*codec.Raw]("raw")
)

func represent[T any](name string) representation {
	return representation{
		name: name,
		list: func(ctx context.Context, server http.RoundTripper, target source.Target, opts source.ListOptions) (out []kept, _ source.ListResult, _ error) {
			result, err := newSource[T](server, target).List(ctx, opts, func(obj T) error {
				out = append(out, toJSON(obj))
				return nil
			})
			return out, result, err
		},
		watch: func(ctx context.Context, server http.RoundTripper, target source.Target, opts source.WatchOptions) (out []source.Event[kept], _ error) {
			err := newSource[T](server, target).Watch(ctx, opts, func(e source.Event[T]) error {
				event := source.Event[kept]{Type: e.Type, ResourceVersion: e.ResourceVersion, InitialEventsEnd: e.InitialEventsEnd}
				if e.Type != source.Bookmark {
					event.Object = toJSON(e.Object)
				}
				out = append(out, event)
				return nil
			})
			return out, err
		},
	}
}

func newSource[T any](server http.RoundTripper, target source.Target) *source.Kube[T] {
	c, err := codec.For[T](configMap, codec.Options{})
	if err != nil {
		panic(err)
	}
	return source.NewKube(&http.Client{Transport: server}, nowhere, target, c)
}

func toJSON(obj any) (out kept) {
	b, err := json.Marshal(obj)
	if err == nil {
		err = json.Unmarshal(b, &out)
	}
	if err != nil {
		panic(err)
	}
	return out
}

// want is what a representation ought to keep of a config map.
func (r representation) want(cm corev1.ConfigMap) kept {
	cm.TypeMeta = metav1.TypeMeta{Kind: "ConfigMap", APIVersion: "v1"}
	if r.name != raw.name {
		cm.ManagedFields = nil
	}
	out := toJSON(&cm)
	if r.name == metadata.name {
		delete(out, "data")
	}
	return out
}

// answer is a server that answers every request the same.
type answer struct {
	status  int // 0 means 200
	header  http.Header
	body    []byte
	request *http.Request // the last one
}

func (w wire) answer(body []byte) *answer {
	return &answer{header: http.Header{"Content-Type": {w.contentType}}, body: body}
}

func (a *answer) RoundTrip(req *http.Request) (*http.Response, error) {
	a.request = req
	status := a.status
	if status == 0 {
		status = http.StatusOK
	}
	return &http.Response{StatusCode: status, Header: a.header, Request: req, Body: io.NopCloser(bytes.NewReader(a.body)), ContentLength: -1}, nil
}
