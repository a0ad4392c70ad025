package fleet

import (
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// A publisher that has taken over publishes what others ask for once they ask again. Until then it
// cannot say how fresh that is, which is no reason to answer that an object does not exist.
func TestNotYetPublishedIsNotMissing(t *testing.T) {
	term := &term{published: &published{name: "prod"}, byName: map[feedName]*feed{}}
	name := feedName{corev1.SchemeGroupVersion.WithResource("pods"), ""}
	for _, path := range []string{freshPath, "/tidings/later"} {
		if _, status, err := term.own(t.Context(), path, name, 0); err == nil || status != http.StatusServiceUnavailable {
			t.Errorf("%s is answered with %d, %v", path, status, err)
		}
	}
}
