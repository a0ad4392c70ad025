package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"reflect"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tidings-io/tidings/informer"
)

// object is what an informer holds and the Kubernetes API can show.
type object interface {
	metav1.Object
	runtime.Object
}

// handler serves the objects of an informer in the form of the Kubernetes API.
type handler[T object] struct{ inf *informer.Informer[T] }

func (h handler[T]) resource() schema.GroupResource { return h.inf.Status().Resource.GroupResource() }

// serveObject answers a get.
func (h handler[T]) serveObject(w http.ResponseWriter, req *http.Request) {
	name := req.PathValue("name")
	obj, ok := h.inf.Get(req.PathValue("namespace"), name)
	if !ok {
		writeError(w, apierrors.NewNotFound(h.resource(), name))
		return
	}
	writeJSON(w, http.StatusOK, obj)
}

// serveCollection answers a list or a watch.
func (h handler[T]) serveCollection(w http.ResponseWriter, req *http.Request) {
	params := req.URL.Query()
	selector, err := labels.Parse(params.Get("labelSelector"))
	if err != nil {
		writeError(w, apierrors.NewBadRequest(err.Error()))
		return
	}
	if params.Get("fieldSelector") != "" || params.Get("continue") != "" {
		writeError(w, apierrors.NewBadRequest("neither field selectors nor pages are served here"))
		return
	}
	query := informer.Query{Namespace: req.PathValue("namespace"), Labels: selector}
	if watch, _ := strconv.ParseBool(params.Get("watch")); watch {
		h.watch(w, req, query)
		return
	}
	h.list(w, req, query)
}

// list answers from one state of the informer, which is at least as new as the
// resourceVersion asked for.
func (h handler[T]) list(w http.ResponseWriter, req *http.Request, query informer.Query) {
	if version := req.URL.Query().Get("resourceVersion"); version != "" && version != "0" {
		if err := h.inf.WaitFor(req.Context(), version); err != nil {
			writeError(w, apierrors.NewTimeoutError(err.Error(), 1))
			return
		}
	}
	view := h.inf.View()
	defer view.Release()
	kind := reflect.TypeFor[T]().Elem().Name() + "List"
	writeJSON(w, http.StatusOK, map[string]any{
		"kind": kind, "apiVersion": h.inf.Status().Resource.GroupVersion().String(),
		"metadata": metav1.ListMeta{ResourceVersion: view.ResourceVersion()},
		"items":    view.Append([]T{}, query),
	})
}

// watch streams changes: those after the resourceVersion asked for or, without one, the
// objects first.
func (h handler[T]) watch(w http.ResponseWriter, req *http.Request, query informer.Query) {
	params := req.URL.Query()
	ctx := req.Context()
	initial, _ := strconv.ParseBool(params.Get("sendInitialEvents"))
	version := params.Get("resourceVersion")
	var events iter.Seq[informer.Event[T]]
	if initial || version == "" || version == "0" {
		// A slow client costs memory: keep only the newest state of each object for it.
		events = h.inf.Events(ctx, informer.Bookmarks(), informer.FoldAfter(1000))
	} else {
		var err error
		events, err = h.inf.EventsSince(ctx, version, informer.Bookmarks(), informer.FoldAfter(1000))
		if err != nil {
			status := apierrors.NewResourceExpired(err.Error())
			if !errors.Is(err, informer.ErrExpired) {
				status = apierrors.NewBadRequest(err.Error())
			}
			writeError(w, status)
			return
		}
	}
	w.Header().Set("Content-Type", "application/json")
	out := http.NewResponseController(w)
	encoder := json.NewEncoder(w)
	end := time.Now().Add(30 * time.Minute)
	if seconds, err := strconv.Atoi(params.Get("timeoutSeconds")); err == nil && seconds > 0 {
		end = time.Now().Add(time.Duration(seconds) * time.Second)
	}
	_ = out.SetWriteDeadline(end) // also ends the wait for a client that does not read
	if out.Flush() != nil {
		return
	}
	for e := range events {
		kind, obj := h.frame(e, query, initial)
		if kind == "" {
			continue
		}
		if encoder.Encode(map[string]any{"type": kind, "object": obj}) != nil || out.Flush() != nil || time.Now().After(end) {
			return
		}
	}
}

// frame returns the type and the object of a watch event, or "" for none: an object
// that begins to match the query is added for this watch, and one that no longer
// matches is deleted.
func (h handler[T]) frame(e informer.Event[T], query informer.Query, initial bool) (kind string, obj any) {
	switch e.Type {
	case informer.Synced, informer.Bookmark:
		mark := &unstructured.Unstructured{Object: map[string]any{}}
		mark.SetGroupVersionKind(h.inf.Status().Resource.GroupVersion().WithKind(reflect.TypeFor[T]().Elem().Name()))
		mark.SetResourceVersion(e.ResourceVersion())
		if e.Type == informer.Synced && initial {
			mark.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
		}
		return "BOOKMARK", mark
	}
	is := matches(query, e.Object) && e.Type != informer.Deleted
	was := e.Type != informer.Added && matches(query, e.Old)
	switch {
	case is && was:
		return "MODIFIED", e.Object
	case is:
		return "ADDED", e.Object
	case was:
		gone := e.Object.DeepCopyObject().(T)
		gone.SetResourceVersion(e.ResourceVersion()) // clients resume from it
		return "DELETED", gone
	}
	return "", nil
}

func matches(query informer.Query, obj object) bool {
	return (query.Namespace == "" || query.Namespace == obj.GetNamespace()) && query.Labels.Matches(labels.Set(obj.GetLabels()))
}

func writeJSON(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v) // fails only if the client has left
}

// writeError answers with the Status of an error, as an API server does.
func writeError(w http.ResponseWriter, err *apierrors.StatusError) {
	status := err.Status()
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	status.Message = fmt.Sprintf("sidecar: %s", status.Message)
	writeJSON(w, int(status.Code), status)
}
