package fleet_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidings-io/tidings/cmd/tidings/internal/fleet"
	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
)

var decimalVersion = regexp.MustCompile(`"resourceVersion":"([0-9]+)"`)

// A resource whose versions are not decimal numbers, as of some aggregated APIs, is not published. The
// publisher, the log and the answer to a replica say so.
func TestVersionsThatAreNotNumbers(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			resp, err := next.RoundTrip(req)
			if err != nil || !strings.HasSuffix(req.URL.Path, "/pods") || req.URL.Query().Get("watch") != "" {
				return resp, err
			}
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			if err != nil {
				return nil, err
			}
			body = decimalVersion.ReplaceAll(body, []byte(`"resourceVersion":"v$1"`))
			resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
			resp.Header.Del("Content-Length")
			return resp, nil
		})
	})
	r.put("a", "1")
	_, err := r.api.Put(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "one"}})
	r.must(err)
	p, one := r.publisher("first"), r.replica("one")
	one.has(map[string]string{"a": "1"})
	r.eventually("the refusal", func() error {
		c, err := one.mirror.Cluster("prod")
		if err != nil {
			return err
		}
		res, err := c.ResourceFor(r.ctx, corev1.SchemeGroupVersion.WithResource("pods"))
		if err != nil {
			return err
		}
		if _, err = c.Ready(r.ctx, res, ""); err == nil || mirror.ReasonOf(err) != mirror.Forbidden || !strings.Contains(err.Error(), "decimal") {
			return fmt.Errorf("the error is %w", err)
		}
		return nil
	})
	if why := p.holds().Unpublished["pods"]; !strings.Contains(why, "decimal") {
		t.Errorf("the state says %q", why)
	}
	r.eventually("a beat that says so", func() error {
		all, err := fleet.List(r.ctx, r.js())
		if err == nil && (len(all) != 1 || all[0].Unpublished["pods"] == "") {
			err = fmt.Errorf("%+v", all)
		}
		return err
	})
}
