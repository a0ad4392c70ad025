package metadatainformer_test

import (
	"context"
	"testing"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/metadata/fake"
	"k8s.io/client-go/tools/cache"

	"github.com/tidings-io/tidings/informer/clientgo"
	"github.com/tidings-io/tidings/informer/clientgo/metadatainformer"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestAFactory(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	scheme := fake.NewTestScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	pods := corev1.SchemeGroupVersion.WithResource("pods")
	client := fake.NewSimpleMetadataClient(scheme, &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "here", Name: "a"},
	})
	factory := metadatainformer.NewSharedInformerFactoryWithOptions(client, 0, metadatainformer.WithTransform(func(obj any) (any, error) {
		obj.(metav1.Object).SetAnnotations(map[string]string{"seen": "yes"})
		return obj, nil
	}))
	inf := factory.ForResource(pods)
	events := make(chan *metav1.PartialObjectMetadata, 10)
	if _, err := inf.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(obj any) {
		events <- obj.(*metav1.PartialObjectMetadata)
	}}); err != nil {
		t.Fatal(err)
	}
	factory.Start(ctx.Done())
	if got := factory.WaitForCacheSync(ctx.Done()); len(got) != 1 || !got[pods] {
		t.Errorf("synced %v", got)
	}
	if got := <-events; got.Name != "a" || got.Annotations["seen"] != "yes" {
		t.Errorf("got %v", got)
	}
	if o, err := inf.Lister().ByNamespace("here").Get("a"); err != nil || o == nil {
		t.Errorf("not listed: %v", err)
	}
	if state, ok := clientgo.Observe(inf.Informer()); !ok || state.Status().Resource != pods {
		t.Error("its status does not say what it is of")
	}
	cancel()
	factory.Shutdown()
}
