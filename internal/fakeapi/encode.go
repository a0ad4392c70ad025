package fakeapi

import (
	"io"
	"net/http"
	"reflect"
	"strconv"
	"strings"

	"github.com/munnerz/goautoneg"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
)

// codecs stream lists item by item, so that a list is never in memory twice.
var codecs = serializer.NewCodecFactory(scheme.Scheme,
	serializer.WithStreamingCollectionEncodingToJSON(),
	serializer.WithStreamingCollectionEncodingToProtobuf(),
)

// format is what a client and the server have agreed on for a response.
type format struct {
	info     runtime.SerializerInfo
	metadata bool // objects are reduced to PartialObjectMetadata
}

// what is asked for, which decides what can be answered
type shape struct {
	typed  bool   // the object has a protobuf form
	as     string // the kind that ";as=" may name, if any
	stream bool
}

// negotiate picks the first of the client's preferences that can be met.
// Clauses that ask for a Table or anything else unknown are passed over, as
// clients that ask for those name alternatives.
func negotiate(req *http.Request, s shape) (format, error) {
	infos := codecs.SupportedMediaTypes()
	header := req.Header.Get("Accept")
	if header == "" {
		header = "application/json"
	}
	var accepted []string
	for _, info := range infos {
		if !s.stream {
			accepted = append(accepted, info.MediaType)
		} else if info.StreamSerializer != nil {
			accepted = append(accepted, info.MediaType+";stream=watch")
		}
	}
	for _, clause := range goautoneg.ParseAccept(header) {
		as := clause.Params["as"]
		if as != "" && (as != s.as || clause.Params["g"] != metav1.GroupName || clause.Params["v"] != "v1") {
			continue
		}
		for _, info := range infos {
			if clause.Type != "*" && clause.Type != info.MediaTypeType || clause.SubType != "*" && clause.SubType != info.MediaTypeSubType {
				continue
			}
			// Custom resources have no protobuf form, but their metadata has.
			if info.MediaType == runtime.ContentTypeProtobuf && !s.typed && as == "" {
				continue
			}
			if s.stream && info.StreamSerializer == nil {
				continue
			}
			if info.PrettySerializer != nil && !s.stream && wantsPretty(req) {
				info.Serializer = info.PrettySerializer
			}
			return format{info: info, metadata: as != ""}, nil
		}
	}
	return format{}, errNotAcceptable(accepted)
}

// wantsPretty recognises people at a terminal, as a kube-apiserver does.
func wantsPretty(req *http.Request) bool {
	if p := req.URL.Query().Get("pretty"); p != "" {
		pretty, _ := strconv.ParseBool(p)
		return pretty
	}
	agent := req.UserAgent()
	return strings.HasPrefix(agent, "curl") || strings.HasPrefix(agent, "Wget") || strings.HasPrefix(agent, "Mozilla/5.0")
}

// single is the object as the body of a response or a watch event.
func (f format) single(r *resource, obj Object) runtime.Object {
	if !f.metadata {
		return r.withKind(obj)
	}
	return partial(obj)
}

func partial(obj metav1.Object) *metav1.PartialObjectMetadata {
	out := meta.AsPartialObjectMetadata(obj)
	out.SetGroupVersionKind(metav1.SchemeGroupVersion.WithKind("PartialObjectMetadata"))
	return out
}

// list is a list object of the given items.
func (f format) list(r *resource, items []*record, lm metav1.ListMeta) (runtime.Object, error) {
	switch {
	case f.metadata:
		list := &metav1.PartialObjectMetadataList{ListMeta: lm, Items: make([]metav1.PartialObjectMetadata, len(items))}
		list.SetGroupVersionKind(metav1.SchemeGroupVersion.WithKind("PartialObjectMetadataList"))
		for i, rec := range items {
			list.Items[i] = *partial(rec.obj)
		}
		return list, nil
	case r.typed:
		gvk := r.gvk.GroupVersion().WithKind(r.gvk.Kind + "List")
		list, err := scheme.Scheme.New(gvk)
		if err != nil {
			return nil, err
		}
		list.GetObjectKind().SetGroupVersionKind(gvk)
		v := reflect.ValueOf(list).Elem()
		v.FieldByName("ListMeta").Set(reflect.ValueOf(lm))
		into := v.FieldByName("Items")
		into.Set(reflect.MakeSlice(into.Type(), len(items), len(items)))
		for i, rec := range items {
			into.Index(i).Set(reflect.ValueOf(rec.obj).Elem())
		}
		return list, nil
	}
	list := &unstructured.UnstructuredList{Object: map[string]any{}, Items: make([]unstructured.Unstructured, len(items))}
	list.SetGroupVersionKind(r.gvk.GroupVersion().WithKind(r.gvk.Kind + "List"))
	list.SetResourceVersion(lm.ResourceVersion)
	list.SetContinue(lm.Continue)
	list.SetRemainingItemCount(lm.RemainingItemCount)
	for i, rec := range items {
		list.Items[i] = *rec.obj.(*unstructured.Unstructured)
	}
	return list, nil
}

// write sends obj, whose kind is set, as a whole response.
func (f format) write(w http.ResponseWriter, code int, obj runtime.Object) {
	w.Header().Set("Content-Type", f.info.MediaType)
	w.Header().Set("Cache-Control", "no-cache, private")
	w.WriteHeader(code)
	// What fails from here on is the connection: there is nobody to tell.
	_ = f.info.Serializer.Encode(obj, w)
}

// writeStatus answers with an error.
func writeStatus(w http.ResponseWriter, req *http.Request, err error) {
	f, nerr := negotiate(req, shape{typed: true})
	if nerr != nil {
		f.info, _ = runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), runtime.ContentTypeJSON)
	}
	status := toStatus(err)
	retryAfter(w, status)
	f.write(w, int(status.Code), status)
}

// readBody reads an object of the resource. Its kind may be left out, but if
// it is there it has to be the right one.
func (r *resource) readBody(req *http.Request) (Object, error) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, badBody(err)
	}
	if len(body) == 0 {
		return nil, badBody(io.ErrUnexpectedEOF)
	}
	mediaType, err := bodyType(req, r.typed)
	if err != nil {
		return nil, err
	}
	return r.decode(body, mediaType)
}

func (r *resource) decode(body []byte, mediaType string) (Object, error) {
	info, _ := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), mediaType)
	into := r.empty()
	_, gvk, err := info.Serializer.Decode(body, &r.gvk, into)
	if err != nil {
		return nil, badBody(err)
	}
	if *gvk != r.gvk {
		return nil, badKind(*gvk, r.gvk)
	}
	return r.toStored(into)
}

func bodyType(req *http.Request, typed bool) (string, error) {
	mediaType, _, _ := strings.Cut(req.Header.Get("Content-Type"), ";")
	if mediaType == "" {
		return runtime.ContentTypeJSON, nil
	}
	var accepted []string
	for _, info := range codecs.SupportedMediaTypes() {
		if info.MediaType == runtime.ContentTypeProtobuf && !typed {
			continue
		}
		if info.MediaType == mediaType {
			return mediaType, nil
		}
		accepted = append(accepted, info.MediaType)
	}
	return "", errUnsupportedMediaType(accepted)
}

// readOptions reads an optional body like DeleteOptions.
func readOptions(req *http.Request, gvk schema.GroupVersionKind, into runtime.Object) error {
	body, err := io.ReadAll(req.Body)
	if err != nil || len(body) == 0 {
		return err
	}
	if _, _, err := codecs.UniversalDeserializer().Decode(body, &gvk, into); err != nil {
		return badBody(err)
	}
	return nil
}
