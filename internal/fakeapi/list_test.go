package fakeapi_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tidings-io/tidings/internal/fakeapi"
)

func TestGetInEveryEncoding(t *testing.T) {
	inBubble(t, fakeapi.Options{}, func(r *rig) {
		r.addWidgets()
		stored := r.create(pod("default", "a", "node-1", corev1.PodRunning)).(*corev1.Pod)
		r.create(widget("default", "w", "red"))

		viaProtobuf, err := r.typed.CoreV1().Pods("default").Get(r.ctx, "a", metav1.GetOptions{})
		r.must(err)
		if diff := cmp.Diff(stored, viaProtobuf); diff != "" {
			r.Error("typed client:", diff)
		}
		viaJSON, err := r.dynamic.Resource(podsGVR).Namespace("default").Get(r.ctx, "a", metav1.GetOptions{})
		r.must(err)
		fromJSON := &corev1.Pod{}
		r.must(runtime.DefaultUnstructuredConverter.FromUnstructured(viaJSON.Object, fromJSON))
		if fromJSON.Kind != "Pod" || fromJSON.APIVersion != "v1" {
			r.Errorf("a single object says it is %q %q", fromJSON.APIVersion, fromJSON.Kind)
		}
		fromJSON.TypeMeta = metav1.TypeMeta{}
		if diff := cmp.Diff(stored, fromJSON); diff != "" {
			r.Error("dynamic client:", diff)
		}
		meta, err := r.metadata.Resource(podsGVR).Namespace("default").Get(r.ctx, "a", metav1.GetOptions{})
		r.must(err)
		if diff := cmp.Diff(stored.ObjectMeta, meta.ObjectMeta); diff != "" {
			r.Error("metadata client:", diff)
		}
		w, err := r.dynamic.Resource(widgetsGVR).Namespace("default").Get(r.ctx, "w", metav1.GetOptions{})
		r.must(err)
		if w.GetKind() != "Widget" || w.Object["spec"].(map[string]any)["color"] != "red" {
			r.Errorf("custom resource: %v", w)
		}
		if _, err := r.metadata.Resource(widgetsGVR).Namespace("default").Get(r.ctx, "w", metav1.GetOptions{}); err != nil {
			r.Error("metadata of a custom resource:", err)
		}
	})
}

func TestOnlyItemsOfCustomResourcesNameTheirKind(t *testing.T) {
	inBubble(t, fakeapi.Options{}, func(r *rig) {
		r.addWidgets()
		r.create(configMap("default", "a", nil))
		r.create(widget("default", "w", "red"))
		raw := func(path string) (list struct {
			Kind, APIVersion string
			Items            []map[string]any
		}) {
			body, err := r.typed.CoreV1().RESTClient().Get().AbsPath(path).SetHeader("Accept", "application/json").DoRaw(r.ctx)
			r.must(err)
			r.must(json.Unmarshal(body, &list))
			return list
		}
		builtin := raw("/api/v1/configmaps")
		if builtin.Kind != "ConfigMapList" || builtin.APIVersion != "v1" || len(builtin.Items) != 1 || builtin.Items[0]["kind"] != nil {
			r.Errorf("built-in: %+v", builtin)
		}
		custom := raw("/apis/example.com/v1/widgets")
		if custom.Kind != "WidgetList" || custom.APIVersion != "example.com/v1" || len(custom.Items) != 1 || custom.Items[0]["kind"] != "Widget" {
			r.Errorf("custom: %+v", custom)
		}
		if empty := raw("/api/v1/pods"); empty.Items == nil {
			r.Error("the items of an empty list are null")
		}
	})
}

func TestListPagesAreOneState(t *testing.T) {
	inBubble(t, fakeapi.Options{}, func(r *rig) {
		for i := range 10 {
			r.create(configMap("default", fmt.Sprintf("cm-%d", i), nil))
		}
		r.create(configMap("other", "cm-z", nil))
		client := r.typed.CoreV1().ConfigMaps("default")
		first, err := client.List(r.ctx, metav1.ListOptions{Limit: 4})
		r.must(err)
		if len(first.Items) != 4 || first.RemainingItemCount == nil || *first.RemainingItemCount != 6 {
			r.Errorf("first page: %d items, %v remaining", len(first.Items), first.RemainingItemCount)
		}
		// None of this may show in the pages that follow.
		r.must(r.cluster.Delete(configMapsGVR, "default", "cm-5"))
		r.create(configMap("default", "cm-55", nil))
		changed := configMap("default", "cm-7", map[string]string{"changed": "yes"})
		_, err = r.cluster.Update(changed)
		r.must(err)

		got := names[corev1.ConfigMap](first.Items)
		page := first
		for page.Continue != "" {
			page, err = client.List(r.ctx, metav1.ListOptions{Limit: 4, Continue: page.Continue})
			r.must(err)
			if page.ResourceVersion != first.ResourceVersion {
				r.Errorf("a page has resourceVersion %s, the first had %s", page.ResourceVersion, first.ResourceVersion)
			}
			for _, cm := range page.Items {
				if cm.Labels["changed"] != "" {
					r.Error("a page shows a change that came after the first page")
				}
			}
			got = append(got, names[corev1.ConfigMap](page.Items)...)
		}
		if want := "cm-0 cm-1 cm-2 cm-3 cm-4 cm-5 cm-6 cm-7 cm-8 cm-9"; strings.Join(got, " ") != want {
			r.Errorf("pages have %v, want %v", got, want)
		}
		if page.RemainingItemCount != nil {
			r.Error("the last page says that there are more")
		}
	})
}

func TestContinueExpires(t *testing.T) {
	inBubble(t, fakeapi.Options{}, func(r *rig) {
		for i := range 5 {
			r.create(configMap("default", fmt.Sprintf("cm-%d", i), nil))
		}
		client := r.typed.CoreV1().ConfigMaps("")
		first, err := client.List(r.ctx, metav1.ListOptions{Limit: 2})
		r.must(err)
		r.create(configMap("default", "cm-9", nil))
		r.cluster.Compact()
		_, err = client.List(r.ctx, metav1.ListOptions{Limit: 2, Continue: first.Continue})
		if !apierrors.IsResourceExpired(err) {
			r.Fatalf("got %v, want Expired", err)
		}
		// The error carries a token to go on with, without consistency.
		token := err.(apierrors.APIStatus).Status().Continue
		rest, err := client.List(r.ctx, metav1.ListOptions{Continue: token})
		r.must(err)
		if got := names[corev1.ConfigMap](rest.Items); !slices.Equal(got, []string{"cm-2", "cm-3", "cm-4", "cm-9"}) {
			r.Errorf("went on with %v", got)
		}
		_, err = client.List(r.ctx, metav1.ListOptions{Continue: "nonsense"})
		if !apierrors.IsBadRequest(err) {
			r.Errorf("a token that is none: got %v, want BadRequest", err)
		}
	})
}

func TestListResourceVersions(t *testing.T) {
	inBubble(t, fakeapi.Options{}, func(r *rig) {
		a := r.create(configMap("default", "a", nil))
		b := r.create(configMap("default", "b", nil))
		client := r.typed.CoreV1().ConfigMaps("")
		list := func(opts metav1.ListOptions) (string, error) {
			l, err := client.List(r.ctx, opts)
			if err != nil {
				return "", err
			}
			return strings.Join(names[corev1.ConfigMap](l.Items), " ") + " @" + l.ResourceVersion, nil
		}
		now := b.GetResourceVersion()
		for _, c := range []struct {
			opts metav1.ListOptions
			want string
		}{
			{metav1.ListOptions{}, "a b @" + now},
			{metav1.ListOptions{ResourceVersion: "0", Limit: 1}, "a b @" + now},
			{metav1.ListOptions{ResourceVersion: a.GetResourceVersion()}, "a b @" + now},
			{metav1.ListOptions{ResourceVersion: a.GetResourceVersion(), Limit: 10}, "a @" + a.GetResourceVersion()},
			{metav1.ListOptions{ResourceVersion: a.GetResourceVersion(), ResourceVersionMatch: "NotOlderThan"}, "a b @" + now},
			{metav1.ListOptions{ResourceVersion: a.GetResourceVersion(), ResourceVersionMatch: "Exact"}, "a @" + a.GetResourceVersion()},
		} {
			if got, err := list(c.opts); err != nil || got != c.want {
				r.Errorf("%+v: got %q, %v, want %q", c.opts, got, err, c.want)
			}
		}

		rev, _ := strconv.Atoi(now)
		future := strconv.Itoa(rev + 1)
		start := time.Now()
		_, err := list(metav1.ListOptions{ResourceVersion: future})
		if !apierrors.IsTimeout(err) || !apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge) || apierrors.ReasonForError(err) != metav1.StatusReasonTimeout {
			r.Errorf("from the future: got %v", err)
		}
		// The client repeats the request, because the error says when.
		if waited := time.Since(start); waited < 3*time.Second {
			r.Errorf("the server waited %v for the revision to come, want at least 3s", waited)
		}
		go func() {
			time.Sleep(time.Second)
			r.create(configMap("default", "c", nil))
		}()
		if got, err := list(metav1.ListOptions{ResourceVersion: future}); err != nil || got != "a b c @"+future {
			r.Errorf("from the near future: got %q, %v", got, err)
		}
		synctest.Wait()

		r.cluster.Compact()
		if _, err := list(metav1.ListOptions{ResourceVersion: now, ResourceVersionMatch: "Exact"}); !apierrors.IsResourceExpired(err) {
			r.Errorf("exact and compacted: got %v, want Expired", err)
		}
		if _, err := list(metav1.ListOptions{ResourceVersionMatch: "Exact"}); !apierrors.IsInvalid(err) {
			r.Errorf("a match without a version: got %v, want Invalid", err)
		}
		if _, err := list(metav1.ListOptions{ResourceVersion: "x"}); !apierrors.IsBadRequest(err) {
			r.Errorf("not a number: got %v, want BadRequest", err)
		}
	})
}

func TestSelectors(t *testing.T) {
	inBubble(t, fakeapi.Options{}, func(r *rig) {
		r.addWidgets()
		r.create(configMap("default", "a", map[string]string{"app": "x", "tier": "front"}))
		r.create(configMap("default", "b", map[string]string{"app": "x"}))
		r.create(configMap("other", "a", map[string]string{"app": "y"}))
		r.create(pod("default", "p1", "node-1", corev1.PodRunning))
		r.create(pod("default", "p2", "node-2", corev1.PodRunning))
		r.create(pod("other", "p3", "node-1", corev1.PodFailed))
		r.create(widget("default", "w1", "red"))
		r.create(widget("default", "w2", "blue"))
		r.create(&corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Namespace: "default", Name: "e1"},
			InvolvedObject: corev1.ObjectReference{Kind: "Pod", Name: "p1", Namespace: "default"},
		})
		for _, c := range []struct{ resource, namespace, labels, fields, want string }{
			{"configmaps", "", "app=x", "", "a b"},
			{"configmaps", "", "app in (x,y),!tier", "", "b a"},
			{"configmaps", "default", "", "metadata.name=a", "a"},
			{"configmaps", "", "", "metadata.name=a", "a a"},
			{"configmaps", "", "", "metadata.namespace!=default", "a"},
			{"pods", "", "", "spec.nodeName=node-1", "p1 p3"},
			{"pods", "", "", "spec.nodeName=node-1,status.phase!=Failed", "p1"},
			{"events", "", "", "involvedObject.kind=Pod,involvedObject.name=p1", "e1"},
			{"events", "", "", "involvedObject.name=p2", ""},
		} {
			list, err := r.dynamic.Resource(corev1.SchemeGroupVersion.WithResource(c.resource)).Namespace(c.namespace).
				List(r.ctx, metav1.ListOptions{LabelSelector: c.labels, FieldSelector: c.fields})
			r.must(err)
			if got := strings.Join(names(list.Items), " "); got != c.want {
				r.Errorf("%+v: got %q", c, got)
			}
		}
		list, err := r.dynamic.Resource(widgetsGVR).List(r.ctx, metav1.ListOptions{FieldSelector: "spec.color=red"})
		r.must(err)
		if got := names(list.Items); !slices.Equal(got, []string{"w1"}) {
			r.Errorf("a selectable field of a custom resource selects %v", got)
		}
		for _, fields := range []string{"spec.nonsense=1", "metadata.labels=x"} {
			_, err := r.typed.CoreV1().Pods("").List(r.ctx, metav1.ListOptions{FieldSelector: fields})
			if !apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), "field label not supported") {
				r.Errorf("field selector %s: got %v, want BadRequest", fields, err)
			}
		}
		_, err = r.typed.CoreV1().ConfigMaps("").List(r.ctx, metav1.ListOptions{LabelSelector: "a b c"})
		if !apierrors.IsBadRequest(err) {
			r.Errorf("bad label selector: got %v, want BadRequest", err)
		}
	})
}
