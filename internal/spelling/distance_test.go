package spelling_test

import (
	"testing"

	"github.com/tidings-io/tidings/internal/spelling"
)

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{
		{"", "", 0}, {"pods", "pods", 0}, {"", "ab", 2}, {"pods", "pod", 1}, {"pods", "pdos", 2}, {"kitten", "sitting", 3},
		{"pods", "deployments", 4}, // their lengths differ by more than the limit
	} {
		if got, back := spelling.Distance(c.a, c.b, 3), spelling.Distance(c.b, c.a, 3); got != c.want || back != c.want {
			t.Errorf("%q and %q: %d and %d, want %d", c.a, c.b, got, back, c.want)
		}
	}
}
