package kubeapi_test

import (
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
	"github.com/tidings-io/tidings/cmd/tidings/internal/server"
)

// A path is decoded once, and only that is read: each of these was once answered with
// something else. No request with the mirror's credentials is for Secrets, which are not
// mirrored here.
func TestPathsAreReadOnce(t *testing.T) {
	const canary = "not-to-be-seen"
	for _, through := range []bool{false, true} {
		r, c := inMemory(t, mirror.Options{}, server.Options{Passthrough: through})
		for _, namespace := range []string{"default", "kube-system"} {
			if _, err := c.Create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "s"}, StringData: map[string]string{"k": canary}}); err != nil {
				t.Fatal(err)
			}
		}
		put(t, c, "c", "1")
		c.ResetCounts()
		for path, want := range map[string]int{
			"/api/v1/namespaces/default/namespaces/kube-system%252fsecrets%252fs": http.StatusNotFound,
			"/api/v1/namespaces/default/namespaces/kube-system":                   http.StatusNotFound,
			"/api/v1/namespaces/default/namespaces":                               http.StatusNotFound,
			"/api/v1/namespaces/default/namespaces?watch=1":                       http.StatusNotFound,
			"/api/v1/watch/namespaces/default/namespaces":                         http.StatusNotFound,
			"/api/v1/namespaces/kube-system%252fsecrets":                          http.StatusBadRequest,
			"/api/v1/namespaces/default/configmaps/c%252f..%252f..%252fsecrets":   http.StatusBadRequest,
			"/api/v1/namespaces/default/configmaps/a%25b":                         http.StatusBadRequest,
			"/api/v1/namespaces/default/configmaps/%2e%2e":                        http.StatusBadRequest,
			"/api/v1/namespaces/kube-system%252fsecrets%252fs/configmaps":         http.StatusOK, // and empty
			"/api/v1/namespaces/def%2561ult/configmaps/c":                         http.StatusNotFound,
			"/api/v1%252fsecrets":                                                 http.StatusNotFound,
			"/api/v1%252fnamespaces%252fkube-system%252fsecrets%252fs":            http.StatusNotFound,
			"/api%252fv1%252fsecrets":                                             http.StatusNotFound,
			"/apis/apps/v1%252fdeployments":                                       http.StatusNotFound,
			"/openapi/v3/..%252f..%252fapi%252fv1%252fsecrets":                    http.StatusNotFound,
			"/api/v1/../v1/configmaps":                                            http.StatusNotFound,
			"//api/v1/configmaps":                                                 http.StatusNotFound,
			"/api//v1/configmaps":                                                 http.StatusNotFound,
			"/api/v1/namespaces//configmaps":                                      http.StatusOK, // of all namespaces
			"/api/v1/namespaces//configmaps/c":                                    http.StatusBadRequest,
			"/api%2Fv1%2Fnamespaces%2Fdefault%2Fconfigmaps%2Fc":                   http.StatusOK, // decoded once, as by the API server
			"/api/v1/namespaces/default/configmaps/c?timeout=nonsense":            http.StatusBadRequest,
		} {
			got := r.ours.get(path)
			if got.code != want && !(through && got.code == http.StatusUnauthorized) { // without credentials nothing is handed on
				t.Errorf("%s (passthrough %v): %d, want %d: %.200s", path, through, got.code, want, got.body)
			}
			if strings.Contains(got.String(), canary) || strings.Contains(got.String(), "bm90LXRvLWJlLXNlZW4") {
				t.Errorf("%s (passthrough %v) shows a Secret: %.300s", path, through, got.body)
			}
		}
		for _, verb := range []string{"get", "list", "watch"} {
			if n := c.Count(verb, corev1.SchemeGroupVersion.WithResource("secrets")); n != 0 {
				t.Errorf("the cluster got %[2]d requests to %[1]s Secrets", verb, n)
			}
		}
	}
}
