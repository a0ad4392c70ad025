package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"go.uber.org/zap/zapcore"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/tidings-io/tidings/cmd/tidings/test/compat/internal/churn"
	"github.com/tidings-io/tidings/informer/clientgo"
	"github.com/tidings-io/tidings/internal/controlplane"
)

var seed = flag.Int64("seed", 1, "of the dice")

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"), goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"))
}

// The API server knows no WatchList, so that reflectors list. Those of
// compat/sample do not.
func TestTheSameCallsOnBothEngines(t *testing.T) {
	ctrl.SetLogger(zap.New(zap.WriteTo(t.Output()), zap.Level(zapcore.ErrorLevel)))
	on := func(c cache.Options) func(context.Context, *rest.Config, string, int) error {
		return func(ctx context.Context, client *rest.Config, namespace string, workers int) error {
			c.DefaultNamespaces = map[string]cache.Config{namespace: {}}
			return run(ctx, client, ctrl.Options{Cache: c, Controller: config.Controller{
				SkipNameValidation:      ptr.To(true), // there are two of one name
				MaxConcurrentReconciles: workers,
			}})
		}
	}
	plane := controlplane.Start(t, controlplane.WithAPIServerFlags("--feature-gates=WatchList=false"))
	churn.Compare(t, plane, churn.Subject{
		Name:        "manager",
		Collections: []string{"/api/v1/namespaces/NAMESPACE/configmaps"},
		Driver: func(client kubernetes.Interface, namespace string) churn.Driver {
			return &driver{client, namespace}
		},
		Value: func(object map[string]any) (int, bool) {
			data, _ := object["data"].(map[string]any)
			v, _ := data["v"].(string)
			n, err := strconv.Atoi(v)
			return n, err == nil
		},
		Engines: [2]churn.Engine{
			{Name: "client-go", Run: on(cache.Options{})},
			{Name: "tidings", Run: on(cache.Options{NewInformer: clientgo.NewSharedIndexInformer})},
		},
	}, *seed)
}

// family is ConfigMaps with their copies.
type driver struct {
	client    kubernetes.Interface
	namespace string
}

func (d *driver) Apply(ctx context.Context, name string, to churn.Parent) error {
	labels := map[string]any{"copy": nil, "colour": fmt.Sprint(to.Colour)} // null takes a label away
	if to.Managed {
		labels["copy"] = "yes"
	}
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"name": name, "labels": labels, "annotations": map[string]any{"note": fmt.Sprint(to.Note)}},
		"data":     map[string]any{"v": fmt.Sprint(to.Value), "size": fmt.Sprint(to.Size)},
	})
	if err != nil {
		return err
	}
	configMaps := d.client.CoreV1().ConfigMaps(d.namespace)
	_, err = configMaps.Patch(ctx, name, types.MergePatchType, body, metav1.PatchOptions{})
	if !apierrors.IsNotFound(err) {
		return err
	}
	var made corev1.ConfigMap
	if err := json.Unmarshal(body, &made); err != nil {
		return err
	}
	if !to.Managed {
		delete(made.Labels, "copy")
	}
	_, err = configMaps.Create(ctx, &made, metav1.CreateOptions{})
	return err
}

func (d *driver) Delete(ctx context.Context, name string) error {
	return d.client.CoreV1().ConfigMaps(d.namespace).Delete(ctx, name, metav1.DeleteOptions{})
}

func (d *driver) DeleteChild(ctx context.Context, name string, _ churn.Parent, _ int) error {
	return ifThere(d.Delete(ctx, "copy-of-"+name))
}

func (d *driver) CorruptChild(ctx context.Context, name string, _ churn.Parent, _ int) error {
	_, err := d.client.CoreV1().ConfigMaps(d.namespace).Patch(ctx, "copy-of-"+name, types.MergePatchType, []byte(`{"data":{"v":"spoilt"}}`), metav1.PatchOptions{})
	return ifThere(err)
}

func ifThere(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func (d *driver) Expected(name string, parent churn.Parent) []string {
	if !parent.Managed {
		return nil
	}
	return []string{fmt.Sprintf("copy-of-%s of %s: value %d, size %d", name, name, parent.Value, parent.Size)}
}

func (d *driver) Actual(ctx context.Context) ([]string, error) {
	list, err := d.client.CoreV1().ConfigMaps(d.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	owners := map[types.UID]string{}
	for _, cm := range list.Items {
		owners[cm.UID] = cm.Name
	}
	var lines []string
	for _, cm := range list.Items {
		if !strings.HasPrefix(cm.Name, "copy-of-") {
			continue
		}
		owner := "nobody"
		if of := metav1.GetControllerOf(&cm); of != nil && owners[of.UID] != "" {
			owner = owners[of.UID]
		}
		lines = append(lines, fmt.Sprintf("%s of %s: value %s, size %s", cm.Name, owner, cm.Data["v"], cm.Data["size"]))
	}
	return lines, nil
}
