package fakeapi_test

import (
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tidings-io/tidings/internal/fakeapi"
)

func TestWritesOverHTTP(t *testing.T) {
	inBubble(t, fakeapi.Options{}, func(r *rig) {
		r.addWidgets()
		client := r.typed.CoreV1().ConfigMaps("default")
		w, err := client.Watch(r.ctx, metav1.ListOptions{ResourceVersion: r.cluster.ResourceVersion()})
		r.must(err)
		defer w.Stop()

		created, err := client.Create(r.ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Data: map[string]string{"k": "v"}}, metav1.CreateOptions{})
		r.must(err)
		if created.UID == "" || created.CreationTimestamp.IsZero() || created.Namespace != "default" || created.ResourceVersion != r.cluster.ResourceVersion() {
			r.Errorf("created %+v", created.ObjectMeta)
		}
		if _, err := client.Create(r.ctx, created.DeepCopy(), metav1.CreateOptions{}); !apierrors.IsBadRequest(err) {
			r.Errorf("create with a resourceVersion: %v", err)
		}
		if _, err := client.Create(r.ctx, configMap("default", "a", nil), metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
			r.Errorf("create twice: %v", err)
		}
		if _, err := r.typed.CoreV1().ConfigMaps("nowhere").Create(r.ctx, configMap("nowhere", "a", nil), metav1.CreateOptions{}); !apierrors.IsNotFound(err) {
			r.Errorf("create in a namespace that is not there: %v", err)
		}

		changed := created.DeepCopy()
		changed.Data["k"] = "v2"
		updated, err := client.Update(r.ctx, changed, metav1.UpdateOptions{})
		r.must(err)
		if _, err := client.Update(r.ctx, changed, metav1.UpdateOptions{}); !apierrors.IsConflict(err) || !strings.Contains(err.Error(), "the object has been modified") {
			r.Errorf("update of an old version: %v", err)
		}
		same, err := client.Update(r.ctx, updated, metav1.UpdateOptions{})
		if err != nil || same.ResourceVersion != updated.ResourceVersion {
			r.Errorf("an update that changes nothing: %v, from %s to %s", err, updated.ResourceVersion, same.ResourceVersion)
		}
		for kind, patch := range map[types.PatchType]string{
			types.MergePatchType:          `{"metadata":{"labels":{"merge":"yes"}}}`,
			types.StrategicMergePatchType: `{"metadata":{"labels":{"strategic":"yes"}}}`,
			types.JSONPatchType:           `[{"op":"add","path":"/data/json","value":"yes"}]`,
		} {
			if _, err := client.Patch(r.ctx, "a", kind, []byte(patch), metav1.PatchOptions{}); err != nil {
				r.Errorf("%s: %v", kind, err)
			}
		}
		patched, err := client.Get(r.ctx, "a", metav1.GetOptions{})
		r.must(err)
		if patched.Labels["merge"] != "yes" || patched.Labels["strategic"] != "yes" || patched.Data["json"] != "yes" || patched.Data["k"] != "v2" {
			r.Errorf("after the patches: %+v", patched)
		}
		if _, err := client.Patch(r.ctx, "a", types.MergePatchType, []byte(`{"metadata":{"resourceVersion":"1"},"data":{"x":"y"}}`), metav1.PatchOptions{}); !apierrors.IsConflict(err) {
			r.Errorf("patch of an old version: %v", err)
		}
		if _, err := client.Patch(r.ctx, "a", types.ApplyPatchType, []byte(`{}`), metav1.PatchOptions{}); !apierrors.IsUnsupportedMediaType(err) {
			r.Errorf("apply patch: %v", err)
		}

		wrong := types.UID("wrong")
		if err := client.Delete(r.ctx, "a", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &wrong}}); !apierrors.IsConflict(err) {
			r.Errorf("delete of another uid: %v", err)
		}
		r.must(client.Delete(r.ctx, "a", metav1.DeleteOptions{}))
		if err := client.Delete(r.ctx, "a", metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
			r.Errorf("delete twice: %v", err)
		}
		r.expect(w, "ADDED a", "MODIFIED a", "MODIFIED a", "MODIFIED a", "MODIFIED a", "DELETED a")
		r.quiet(w)

		widgets := r.dynamic.Resource(widgetsGVR).Namespace("default")
		_, err = widgets.Create(r.ctx, widget("default", "w", "red"), metav1.CreateOptions{})
		r.must(err)
		blue, err := widgets.Patch(r.ctx, "w", types.MergePatchType, []byte(`{"spec":{"color":"blue"}}`), metav1.PatchOptions{})
		r.must(err)
		if color, _, _ := unstructured.NestedString(blue.Object, "spec", "color"); color != "blue" {
			r.Errorf("patched widget is %s", color)
		}
		r.must(widgets.DeleteCollection(r.ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
	})
}

func TestStatusIsItsOwnSubresource(t *testing.T) {
	inBubble(t, fakeapi.Options{}, func(r *rig) {
		client := r.typed.CoreV1().Pods("default")
		p, err := client.Create(r.ctx, pod("default", "a", "", corev1.PodRunning), metav1.CreateOptions{})
		r.must(err)
		if p.Status.Phase != corev1.PodPending {
			r.Errorf("a new pod is %s", p.Status.Phase)
		}
		p.Status.Phase = corev1.PodRunning
		p.Spec.NodeName = "node-1"
		p, err = client.UpdateStatus(r.ctx, p, metav1.UpdateOptions{})
		r.must(err)
		if p.Status.Phase != corev1.PodRunning || p.Spec.NodeName != "" {
			r.Errorf("after an update of the status: %s on %q", p.Status.Phase, p.Spec.NodeName)
		}
		deploy, err := r.typed.AppsV1().Deployments("default").Create(r.ctx, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "d"}}, metav1.CreateOptions{})
		r.must(err)
		three := int32(3)
		deploy.Spec.Replicas = &three
		deploy.Status.Replicas = 3
		deploy, err = r.typed.AppsV1().Deployments("default").Update(r.ctx, deploy, metav1.UpdateOptions{})
		r.must(err)
		if deploy.Generation != 2 || deploy.Status.Replicas != 0 {
			r.Errorf("after an update: generation %d, %d replicas in the status", deploy.Generation, deploy.Status.Replicas)
		}
	})
}

func TestFinalizersHoldObjects(t *testing.T) {
	inBubble(t, fakeapi.Options{}, func(r *rig) {
		cm := configMap("default", "a", nil)
		cm.Finalizers = []string{"example.com/wait"}
		r.create(cm)
		client := r.typed.CoreV1().ConfigMaps("default")
		r.must(client.Delete(r.ctx, "a", metav1.DeleteOptions{}))
		held, err := client.Get(r.ctx, "a", metav1.GetOptions{})
		r.must(err)
		if held.DeletionTimestamp == nil {
			r.Error("a deleted object with finalizers has no deletionTimestamp")
		}
		held.Finalizers = nil
		_, err = client.Update(r.ctx, held, metav1.UpdateOptions{})
		r.must(err)
		if _, err := client.Get(r.ctx, "a", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			r.Errorf("after its last finalizer: %v", err)
		}
	})
}

func TestNamespaceTakesItsObjectsAlong(t *testing.T) {
	inBubble(t, fakeapi.Options{}, func(r *rig) {
		_, err := r.typed.CoreV1().Namespaces().Create(r.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team"}}, metav1.CreateOptions{})
		r.must(err)
		r.create(configMap("team", "a", nil))
		r.create(configMap("default", "b", nil))
		r.must(r.typed.CoreV1().Namespaces().Delete(r.ctx, "team", metav1.DeleteOptions{}))
		left, _, err := r.cluster.List(configMapsGVR, "")
		r.must(err)
		if len(left) != 1 || left[0].GetName() != "b" {
			r.Errorf("left over: %v", left)
		}
	})
}

func TestGoMethodsTakeAnyForm(t *testing.T) {
	r := fakeapi.New(fakeapi.Options{})
	if err := r.AddResource(metav1.APIResource{Group: "example.com", Version: "v1", Name: "widgets", Kind: "Widget", Namespaced: true}); err != nil {
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"namespace": "default", "generateName": "a-"}, "data": map[string]any{"k": "v"},
	}}
	out, err := r.Create(u)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := out.(*unstructured.Unstructured); !ok || out.GetName() == "" || u.GetName() != "" {
		t.Errorf("created %T %q from %q", out, out.GetName(), u.GetName())
	}
	stored, err := r.Get(configMapsGVR, "default", out.GetName())
	if err != nil {
		t.Fatal(err)
	}
	cm := stored.(*corev1.ConfigMap)
	if cm.Data["k"] != "v" || cm.Kind != "" {
		t.Errorf("stored %+v", cm)
	}
	cm.Data["k"] = "not stored" // what is handed out is the caller's
	again, _ := r.Get(configMapsGVR, "default", out.GetName())
	if again.(*corev1.ConfigMap).Data["k"] != "v" {
		t.Error("a change of what Get returned has got into the store")
	}
	if _, err := r.Create(widget("default", "w", "red")); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Create(&unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Gadget"}}); err == nil {
		t.Error("created an object of a kind that is not served")
	}
	if err := r.Delete(widgetsGVR, "default", "w"); err != nil {
		t.Error(err)
	}
	if err := r.Delete(widgetsGVR, "default", "w"); !apierrors.IsNotFound(err) {
		t.Errorf("delete twice: %v", err)
	}
	if _, err := r.Create(configMap("", "x", nil)); !apierrors.IsInvalid(err) {
		t.Errorf("without a namespace: %v", err)
	}
}

// The HTTP API and the Go methods write at the same time; whoever follows
// sees every revision once.
func TestNoChangeIsLostOrDoubled(t *testing.T) {
	inBubble(t, fakeapi.Options{}, func(r *rig) {
		w, err := r.dynamic.Resource(configMapsGVR).Watch(r.ctx, watchList())
		r.must(err)
		defer w.Stop()
		const writers, writes = 4, 50
		for i := range writers {
			name := string(rune('a' + i))
			go func() {
				for n := range writes {
					cm := configMap("default", name, map[string]string{"n": string(rune('A' + n))})
					_, err := r.cluster.Update(cm)
					if apierrors.IsNotFound(err) {
						_, err = r.typed.CoreV1().ConfigMaps("default").Create(r.ctx, cm, metav1.CreateOptions{})
					}
					if err == nil && n%10 == 9 {
						err = r.typed.CoreV1().ConfigMaps("default").Delete(r.ctx, name, metav1.DeleteOptions{})
					}
					if err != nil {
						r.Error(err)
					}
				}
			}()
		}
		r.expect(w, "BOOKMARK end-of-initial-events")
		state := map[string]string{}
		last := 0
		for range writers * writes * 11 / 10 {
			ev := <-w.ResultChan()
			obj := ev.Object.(*unstructured.Unstructured)
			var rv int
			r.must(json.Unmarshal([]byte(obj.GetResourceVersion()), &rv))
			if rv != last+1 && last != 0 {
				r.Fatalf("revision %d follows %d", rv, last)
			}
			last = rv
			_, had := state[obj.GetName()]
			if want := map[bool]string{true: "ADDED", false: "MODIFIED"}[!had]; string(ev.Type) != want && ev.Type != "DELETED" {
				r.Fatalf("%s of %s, which is there: %v", ev.Type, obj.GetName(), had)
			}
			state[obj.GetName()] = obj.GetResourceVersion()
			if ev.Type == "DELETED" {
				delete(state, obj.GetName())
			}
		}
		synctest.Wait()
		r.quiet(w)
	})
}
