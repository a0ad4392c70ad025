package informer_test

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidings-io/tidings/demo"
	"github.com/tidings-io/tidings/informer"
)

// The way out of a refusal is a command to be copied: it must name the resource
// as kubectl does, whatever it was asked for by.
func TestRefusalsNameTheResource(t *testing.T) {
	discovery := func(_ demo.User, a demo.Access) bool { return a.Resource == "" }
	inBubble(t, demo.Options{Allow: discovery}, func(r *rig) {
		inf, err := informer.New[*metav1.PartialObjectMetadata](r.conn, informer.Resource("deploy.v1.apps"))
		r.must(err)
		if err := inf.Start(r.ctx); err == nil || !strings.Contains(err.Error(), "kubectl auth can-i watch deployments.apps)") {
			t.Errorf("the error is %v", err)
		}
	})
}
