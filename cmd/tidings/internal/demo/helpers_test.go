package demo_test

import (
	"context"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/tidings-io/tidings/cmd/tidings/internal/demo"
	"github.com/tidings-io/tidings/internal/fakeapi"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a cluster with clients.
type rig struct {
	*testing.T
	ctx      context.Context
	cluster  *demo.Cluster
	config   *rest.Config
	typed    kubernetes.Interface // protobuf, as typed clients prefer
	metadata metadata.Interface
}

// inBubble runs a test against a cluster in a synctest bubble. It fails if
// anything outlives it.
func inBubble(t *testing.T, w demo.Workload, opts fakeapi.Options, test func(*rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		cluster := demo.New(w, opts)
		config, stop := fakeapi.InProcess(cluster.Cluster)
		defer stop()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		typed := rest.CopyConfig(config)
		typed.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
		typed.ContentType = runtime.ContentTypeProtobuf
		test(&rig{
			T: t, ctx: ctx, cluster: cluster, config: config,
			typed: kubernetes.NewForConfigOrDie(typed), metadata: metadata.NewForConfigOrDie(config),
		})
	})
}

func (r *rig) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

func names[T any, P interface {
	*T
	metav1.Object
}](items []T) []string {
	out := []string{}
	for i := range items {
		out = append(out, P(&items[i]).GetName())
	}
	return out
}
