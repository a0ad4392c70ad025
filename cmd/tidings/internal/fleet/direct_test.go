package fleet_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/tidings-io/tidings/internal/fakeapi"
)

// reviews has the cluster's API server asked about a token by way of a replica.
func (p *part) reviews(want int) {
	p.Helper()
	p.eventually("the answer to a question about a caller", func() error {
		c, err := p.mirror.Cluster("prod")
		if err != nil {
			return err
		}
		body := strings.NewReader(`{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","spec":{"token":"secret"}}`)
		req, err := http.NewRequestWithContext(p.ctx, http.MethodPost, c.Connection().BaseURL().JoinPath("/apis/authentication.k8s.io/v1/tokenreviews").String(), body)
		if err != nil {
			return err
		}
		req.Header.Set("Content-Type", "application/json")
		resp, err := c.Connection().HTTPClient().Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err == nil && (resp.StatusCode != want || !strings.Contains(string(text), `"kind":"TokenReview"`)) {
			err = fmt.Errorf("%s: %s", resp.Status, text)
		}
		return err
	})
}

// questions counts the reviews that a cluster was asked for.
func questions(c *fakeapi.Cluster) (n int) {
	for kind, times := range c.Requests() {
		if kind.Resource.Resource == "tokenreviews" {
			n += times
		}
	}
	return n
}

// A replica that reaches the API server of a cluster itself asks there about callers, and asks the
// publisher if it cannot be reached.
func TestDirectConnection(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	near := fakeapi.New(fakeapi.Options{})
	config, stop := fakeapi.InProcess(near)
	t.Cleanup(stop)
	r.direct = map[string]*rest.Config{"prod": config}
	r.put("a", "1")
	r.publisher("first")
	one := r.replica("one")
	one.has(map[string]string{"a": "1"})
	one.reviews(http.StatusCreated)
	if direct, through := questions(near), questions(r.api); direct == 0 || through != 0 {
		t.Errorf("%d questions were put directly and %d through the publisher", direct, through)
	}
	near.SetDown(true)
	one.reviews(http.StatusCreated)
	if through := questions(r.api); through == 0 {
		t.Error("the publisher was not asked while the API server could not be reached")
	}
	if lists := near.Count("list", configMaps); lists != 0 {
		t.Errorf("the API server was asked for %d lists", lists)
	}
}
