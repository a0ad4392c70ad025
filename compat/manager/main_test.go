package main

import (
	"context"
	"fmt"
	"math/rand"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/tidings-io/tidings/informer/clientgo"
	"github.com/tidings-io/tidings/internal/controlplane"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(controlplane.Tests(m), goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"), goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"))
}

// TestTheSameEndOnBothEngines runs the controller on client-go's informers and
// on ours, in namespaces of their own, while the same things happen there.
func TestTheSameEndOnBothEngines(t *testing.T) {
	ctrl.SetLogger(zap.New(zap.WriteTo(t.Output())))
	cp := controlplane.Shared(t)
	client, err := kubernetes.NewForConfig(cp.AdminConfig())
	if err != nil {
		t.Fatal(err)
	}
	ends := map[string]string{}
	for name, options := range map[string]cache.Options{
		"client-go": {},
		"tidings":   {NewInformer: clientgo.NewSharedIndexInformer},
	} {
		t.Run(name, func(t *testing.T) {
			namespace := "copies-" + name
			if _, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			options.DefaultNamespaces = map[string]cache.Config{namespace: {}}
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() {
				ended <- run(ctx, cp.AdminConfig(), ctrl.Options{
					Cache:      options,
					Controller: config.Controller{SkipNameValidation: ptr.To(true)}, // there are two of one name
				})
			}()
			defer func() {
				stop()
				if err := <-ended; err != nil {
					t.Error(err)
				}
			}()
			want := churn(t, client, namespace)
			err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, 30*time.Second, true, func(ctx context.Context) (bool, error) {
				ends[name], err = copies(ctx, client, namespace)
				return ends[name] == want, err
			})
			if err != nil {
				t.Errorf("the copies are\n%s\nand should be\n%s", ends[name], want)
			}
		})
	}
	if ends["client-go"] != ends["tidings"] {
		t.Error("the engines ended in different states")
	}
}

// churn makes, changes and deletes, by the same dice each time, and returns what
// is left.
func churn(t *testing.T, client kubernetes.Interface, namespace string) string {
	dice := rand.New(rand.NewSource(1))
	configMaps := client.CoreV1().ConfigMaps(namespace)
	left := map[string]string{}
	for n := range 200 {
		name := fmt.Sprint("c", dice.Intn(20))
		value := fmt.Sprint(n)
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"copy": "yes"}}, Data: map[string]string{"v": value}}
		var err error
		switch _, there := left[name]; {
		case !there:
			_, err = configMaps.Create(t.Context(), cm, metav1.CreateOptions{})
			left[name] = value
		case dice.Intn(4) == 0:
			err = configMaps.Delete(t.Context(), name, metav1.DeleteOptions{})
			delete(left, name)
		default:
			_, err = configMaps.Update(t.Context(), cm, metav1.UpdateOptions{})
			left[name] = value
		}
		if err != nil && !apierrors.IsConflict(err) {
			t.Fatal(err)
		}
	}
	var lines []string
	for name, value := range left {
		lines = append(lines, name+"="+value)
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// copies is what the controller has made of it.
func copies(ctx context.Context, client kubernetes.Interface, namespace string) (string, error) {
	list, err := client.CoreV1().ConfigMaps(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", err
	}
	var lines []string
	for _, cm := range list.Items {
		if original, ok := strings.CutPrefix(cm.Name, "copy-of-"); ok {
			lines = append(lines, original+"="+cm.Data["v"])
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n"), nil
}
