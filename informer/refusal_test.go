package informer_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tidings-io/tidings/informer"
	"github.com/tidings-io/tidings/internal/fakeapi"
)

// The hint of a refusal is a command to be copied. It must name the resource as
// kubectl does, whatever name the caller has used.
func TestRefusalsNameTheResource(t *testing.T) {
	discovery := func(_ fakeapi.User, a fakeapi.Access) bool { return a.Resource == "" }
	inBubble(t, fakeapi.Options{Allow: discovery}, func(r *rig) {
		inf, err := informer.New[*metav1.PartialObjectMetadata](r.conn, informer.Resource("deploy.v1.apps"))
		r.must(err)
		err = inf.Start(r.ctx)
		refused := (*informer.RefusedError)(nil)
		if !errors.As(err, &refused) || !strings.Contains(refused.Hint, "kubectl auth can-i watch deployments.apps)") || !strings.Contains(err.Error(), refused.Hint) {
			t.Errorf("the error is %v", err)
		}
	})
}

// A name that discovery does not know has no version: the hint must not mention one.
func TestRefusalOfAnUnknownNameSaysWhatToDo(t *testing.T) {
	inBubble(t, fakeapi.Options{}, func(r *rig) {
		inf, err := informer.New[*metav1.PartialObjectMetadata](r.conn, informer.Resource("deploymints"))
		r.must(err)
		err = inf.Start(r.ctx)
		refused := (*informer.RefusedError)(nil)
		if !errors.As(err, &refused) || refused.Hint != "correct the name, or install the resource (see: kubectl api-resources)" || !strings.Contains(err.Error(), "did you mean deployments.apps?") {
			t.Errorf("the error is %v", err)
		}
	})
}

// A function that is nil would panic at each object.
func TestFunctionsThatAreNil(t *testing.T) {
	inBubble(t, fakeapi.Options{}, func(r *rig) {
		for says, opt := range map[string]informer.Option{
			"informer.Filter: the function is nil":    informer.Filter[*corev1.ConfigMap](nil),
			"informer.Transform: the function is nil": informer.Transform[*corev1.ConfigMap](nil),
		} {
			if _, err := informer.New[*corev1.ConfigMap](r.conn, opt); err == nil || err.Error() != says {
				t.Errorf("the error is %v, not %s", err, says)
			}
		}
	})
}

// A transform cannot leave an object out. The list fails, and the process goes on.
func TestTransformThatReturnsNil(t *testing.T) {
	for name, opts := range map[string][]informer.Option{"plain": nil, "compact": {informer.Compact()}} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, fakeapi.Options{}, func(r *rig) {
				r.set("default", "a", "1")
				none := informer.Transform(func(*corev1.ConfigMap) (*corev1.ConfigMap, error) { return nil, nil })
				inf := r.configMapInformer(append(opts, none)...)
				if err := inf.Start(r.within(time.Second)); err == nil || !strings.Contains(err.Error(), "the transform returned nil for default/a without an error; to leave objects out, use a filter") {
					t.Errorf("the error is %v", err)
				}
			})
		})
	}
}

// Untagged lacks the tag `json:"metadata"`.
type Untagged struct {
	metav1.TypeMeta
	metav1.ObjectMeta
}

// DeepCopyObject implements runtime.Object.
func (u *Untagged) DeepCopyObject() runtime.Object { out := *u; return &out }

// Objects of a type that cannot have their names would replace each other.
func TestTypeWithoutMetadata(t *testing.T) {
	inBubble(t, fakeapi.Options{}, func(r *rig) {
		_, err := informer.New[*Untagged](r.conn, informer.Resource("configmaps"), informer.Kind("ConfigMap"))
		if err == nil || !strings.Contains(err.Error(), "embed metav1.ObjectMeta with the tag `json:\"metadata\"`") {
			t.Errorf("the error is %v", err)
		}
	})
}

// The error of a wait for a stuck handler has its name.
func TestWaitForStuckHandler(t *testing.T) {
	inBubble(t, fakeapi.Options{}, func(r *rig) {
		r.set("default", "a", "1")
		release := make(chan struct{})
		inf := r.configMapInformer()
		h := inf.AddHandler(informer.HandlerFunc[*corev1.ConfigMap](func(informer.Event[*corev1.ConfigMap]) { <-release }), informer.Named("slow"))
		r.must(inf.Start(r.ctx))
		for _, err := range []error{h.WaitForSync(r.within(time.Second)), h.Remove(r.within(time.Second))} {
			if err == nil || !strings.Contains(err.Error(), `handler "slow"`) {
				t.Errorf("the error is %v", err)
			}
		}
		close(release)
	})
}
