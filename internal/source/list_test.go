package source_test

import (
	"errors"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tidings-io/tidings/internal/codec"
	"github.com/tidings-io/tidings/internal/source"
)

// Every representation decodes every encoding it requests, and sets kind and apiVersion,
// which the items of lists lack.
func TestListsInEveryEncoding(t *testing.T) {
	items := []corev1.ConfigMap{makeConfigMap(0), makeConfigMap(1), makeConfigMap(2)}
	remaining := int64(7)
	for _, w := range wires {
		for _, keep := range w.keeps {
			t.Run(w.name+" as "+keep.name, func(t *testing.T) {
				meta := metav1.ListMeta{ResourceVersion: "200", Continue: "more", RemainingItemCount: &remaining}
				got, result, err := keep.list(t.Context(), w.answer(w.list(meta, items...)), configMaps, source.ListOptions{})
				if err != nil {
					t.Fatal(err)
				}
				if want := (source.ListResult{ResourceVersion: "200", Continue: "more", Remaining: 7}); result != want {
					t.Errorf("the result is %+v, not %+v", result, want)
				}
				if len(got) != len(items) {
					t.Fatalf("%d objects, not %d", len(got), len(items))
				}
				for i := range items {
					if want := keep.want(items[i]); !reflect.DeepEqual(got[i], want) {
						t.Errorf("object %d is\n%v, not\n%v", i, got[i], want)
					}
				}
			})
		}
	}
}

func TestRemainingItems(t *testing.T) {
	for _, w := range wires {
		for token, want := range map[string]int64{"": 0, "more": -1} {
			_, result, err := w.keeps[0].list(t.Context(), w.answer(w.list(metav1.ListMeta{ResourceVersion: "1", Continue: token})), configMaps, source.ListOptions{})
			if err != nil || result.Remaining != want {
				t.Errorf("%s: with continue %q and no count, %d remain: %v", w.name, token, result.Remaining, err)
			}
		}
	}
}

func TestEmptyLists(t *testing.T) {
	for _, w := range wires {
		got, result, err := w.keeps[0].list(t.Context(), w.answer(w.list(metav1.ListMeta{ResourceVersion: "7"})), configMaps, source.ListOptions{})
		if err != nil || len(got) != 0 || result.ResourceVersion != "7" {
			t.Errorf("%s: %v, %+v, %v", w.name, got, result, err)
		}
	}
	for _, body := range []string{
		`{"items":null,"metadata":{"resourceVersion":"7"}}`,
		`{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[]}` + "\n",
		` { "extra" : {"items":[1]} , "items" : [ ] , "metadata" : {"resourceVersion":"7"} } `,
	} {
		if _, result, err := raw.list(t.Context(), wires[0].answer([]byte(body)), configMaps, source.ListOptions{}); err != nil || result.ResourceVersion != "7" {
			t.Errorf("%s: %+v, %v", body, result, err)
		}
	}
}

// An answer that is not a list must not be taken for an empty or a short one: the store
// would be emptied.
func TestNotAList(t *testing.T) {
	for _, body := range []string{
		``, ` `, `null`, `[]`, `5`, `"text"`, `{}`, `{"items":5}`, `{"items":{}}`, `{"items":["text"]}`, `{"items":[5]}`, `{"items":[null]}`, `{"items":[[]]}`,
		`{"message":"hello"}`,
		`{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success"}`,
		`{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"7"}}`,
		`{"items":[],"metadata":5}`, `{"items":[],"metadata":{"resourceVersion":7}}`,
		`{"items":[],"items":[]}`, `{"items":[]}{"items":[]}`, `{"items":[]} trailing`, `{"items":[]]`, `{"items":[}`, `{"items":[],}`, `{items:[]}`,
		`<html>{"items":[]}</html>`,
	} {
		for _, keep := range []representation{typed, dynamic, raw, metadata} {
			if got, _, err := keep.list(t.Context(), wires[0].answer([]byte(body)), configMaps, source.ListOptions{}); err == nil {
				t.Errorf("%s is read as a list of %v", body, got)
			}
		}
	}
	item := "\x12\x08\x0a\x06\x0a\x04name" // a config map of that name as an item
	for name, body := range map[string]string{
		"nothing":                       "",
		"no magic":                      "k8s",
		"another magic":                 "k9s\x00\x12\x02\x0a\x00",
		"JSON":                          `{"items":[]}`,
		"no list in the envelope":       "k8s\x00",
		"an envelope without a list":    "k8s\x00\x1a\x00\x22\x00",
		"an empty list":                 "k8s\x00\x12\x00",
		"a list without metadata":       "k8s\x00\x12\x0a" + item,
		"two lists":                     "k8s\x00\x12\x02\x0a\x00\x12\x02\x0a\x00",
		"an item longer than its list":  "k8s\x00\x12\x0a\x0a\x00\x12\x08\x0a\x06\x0a\x04name",
		"a list longer than the answer": "k8s\x00\x12\x0d\x0a\x00" + item,
		"a list of 2⁶⁴-1 bytes":         "k8s\x00\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01" + "\x0a\x00" + item,
		"a list of 2⁶³-1 bytes":         "k8s\x00\x12\xff\xff\xff\xff\xff\xff\xff\xff\x7f" + "\x0a\x00" + item,
		"an item of 2⁶⁴-1 bytes":        "k8s\x00\x12\x0d\x0a\x00\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
		"a length without end":          "k8s\x00\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
		"items that are a number":       "k8s\x00\x12\x04\x0a\x00\x10\x01",
		"a field of number 0":           "k8s\x00\x12\x04\x0a\x00\x02\x00",
	} {
		if got, _, err := typed.list(t.Context(), wires[1].answer([]byte(body)), configMaps, source.ListOptions{}); err == nil {
			t.Errorf("%s is read as a list of %v", name, got)
		}
	}
	// The bytes above are a list if they are put together well.
	body := "k8s\x00\x12\x0c\x0a\x00" + item + "\x1a\x00\x28\x05"
	if got, _, err := typed.list(t.Context(), wires[1].answer([]byte(body)), configMaps, source.ListOptions{}); err != nil || len(got) != 1 {
		t.Errorf("a good list is read as %v: %v", got, err)
	}
}

// An error of the callback ends the list and is returned unchanged.
func TestCallerEndsAList(t *testing.T) {
	enough := errors.New("enough")
	for _, w := range []wire{wires[0], wires[1]} {
		n := 0
		_, err := newSource[*corev1.ConfigMap](w.answer(w.list(metav1.ListMeta{}, makeConfigMap(0), makeConfigMap(1), makeConfigMap(2))), configMaps).
			List(t.Context(), source.ListOptions{}, func(*corev1.ConfigMap) error {
				if n++; n == 2 {
					return enough
				}
				return nil
			})
		if err != enough || n != 2 {
			t.Errorf("%s: ended with %v after %d objects", w.name, err, n)
		}
	}
}

// The error for an undecodable object names the request.
func TestUndecodableObject(t *testing.T) {
	body := `{"metadata":{"resourceVersion":"7"},"items":[{"metadata":{"name":"a"}},{"metadata":{"name":5}}]}`
	got, _, err := typed.list(t.Context(), wires[0].answer([]byte(body)), configMaps, source.ListOptions{})
	var undecodable *source.DecodeError
	var failure *source.Error
	if !errors.As(err, &undecodable) || !errors.As(err, &failure) || failure.Verb != "list" || !strings.Contains(err.Error(), "list configmaps of cluster test") {
		t.Errorf("after %v: %v", got, err)
	}
}

func TestRequests(t *testing.T) {
	deployments := schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	list := wires[0].list(metav1.ListMeta{ResourceVersion: "1"})
	for _, c := range []struct {
		base   string
		target source.Target
		list   source.ListOptions
		watch  source.WatchOptions
		want   [2]string // of the list and the watch
	}{
		{"https://host:6443", configMaps, source.ListOptions{}, source.WatchOptions{}, [2]string{
			"https://host:6443/api/v1/configmaps",
			"https://host:6443/api/v1/configmaps?allowWatchBookmarks=true&watch=true"}},
		{"https://host/k8s/clusters/c-1/", source.Target{Resource: deployments, Namespace: "shop", Labels: "app in (a,b)", Fields: "metadata.name=x"},
			source.ListOptions{ResourceVersion: "0", Limit: 500, Continue: "t/+=k"},
			source.WatchOptions{ResourceVersion: "17", InitialEvents: true, TimeoutSeconds: 30}, [2]string{
				"https://host/k8s/clusters/c-1/apis/apps/v1/namespaces/shop/deployments?continue=t%2F%2B%3Dk&fieldSelector=metadata.name%3Dx&labelSelector=app+in+%28a%2Cb%29&limit=500&resourceVersion=0",
				"https://host/k8s/clusters/c-1/apis/apps/v1/namespaces/shop/deployments?allowWatchBookmarks=true&fieldSelector=metadata.name%3Dx&labelSelector=app+in+%28a%2Cb%29&resourceVersion=17&resourceVersionMatch=NotOlderThan&sendInitialEvents=true&timeoutSeconds=30&watch=true"}},
	} {
		base, err := url.Parse(c.base)
		if err != nil {
			t.Fatal(err)
		}
		any, err := codec.For[*metav1.PartialObjectMetadata](configMap, codec.Options{})
		if err != nil {
			t.Fatal(err)
		}
		server := wires[0].answer(list)
		src := source.NewKube(&http.Client{Transport: server}, base, c.target, any)
		if _, err := src.List(t.Context(), c.list, func(*metav1.PartialObjectMetadata) error { return nil }); err != nil {
			t.Error(err)
		}
		if got := server.request.URL.String(); got != c.want[0] {
			t.Errorf("lists\n%s, not\n%s", got, c.want[0])
		}
		if accept := server.request.Header.Get("Accept"); accept != "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json" {
			t.Errorf("a list accepts %s", accept)
		}
		if latest, err := src.Latest(t.Context()); err != nil || latest != "1" || server.request.URL.Query().Get("limit") != "1" || server.request.URL.Query().Has("resourceVersion") {
			t.Errorf("the latest version is %q, %v, of %s", latest, err, server.request.URL)
		}
		server.body = nil
		if err := src.Watch(t.Context(), c.watch, func(source.Event[*metav1.PartialObjectMetadata]) error { return nil }); err != nil {
			t.Error(err)
		}
		if got := server.request.URL.String(); got != c.want[1] {
			t.Errorf("watches\n%s, not\n%s", got, c.want[1])
		}
		if accept := server.request.Header.Get("Accept"); accept != "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json" {
			t.Errorf("a watch accepts %s", accept)
		}
	}
}

// Long lists are decoded on several CPUs and delivered in order. They end at an
// undecodable object and at an error of the callback.
func TestLongLists(t *testing.T) {
	items := make([]corev1.ConfigMap, 600)
	for i := range items {
		items[i] = makeConfigMap(i)
	}
	for _, w := range wires {
		for _, keep := range w.keeps {
			got, _, err := keep.list(t.Context(), w.answer(w.list(metav1.ListMeta{}, items...)), configMaps, source.ListOptions{})
			if err != nil || len(got) != len(items) {
				t.Fatalf("%s as %s: %d objects, %v", w.name, keep.name, len(got), err)
			}
			for i := range got {
				if want := keep.want(items[i]); !reflect.DeepEqual(got[i], want) {
					t.Fatalf("%s as %s: object %d is\n%v, not\n%v", w.name, keep.name, i, got[i], want)
				}
			}
		}
	}
	body := strings.Replace(string(wires[0].list(metav1.ListMeta{}, items...)), `"name":"cm-400"`, `"name":400`, 1)
	got, _, err := typed.list(t.Context(), wires[0].answer([]byte(body)), configMaps, source.ListOptions{})
	if undecodable := (*source.DecodeError)(nil); !errors.As(err, &undecodable) || len(got) > 400 {
		t.Errorf("%d objects, then %v", len(got), err)
	}
	enough, n := errors.New("enough"), 0
	_, err = newSource[*metav1.PartialObjectMetadata](wires[3].answer(wires[3].list(metav1.ListMeta{}, items...)), configMaps).
		List(t.Context(), source.ListOptions{}, func(*metav1.PartialObjectMetadata) error {
			if n++; n == 300 {
				return enough
			}
			return nil
		})
	if err != enough || n != 300 {
		t.Errorf("ended with %v after %d objects", err, n)
	}
}
