package cluster_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/tidings-io/tidings/cluster"
)

// There are proxies that repeat the request in what they say went wrong.
func TestCredentialsAreNotRepeated(t *testing.T) {
	status := http.StatusBadGateway
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Warning", `299 - "you are `+r.Header.Get("Authorization")+`"`)
		w.WriteHeader(status)
		user, password, _ := r.BasicAuth()
		fmt.Fprintf(w, "upstream failed\nAuthorization: %s\n%s:%s\n", r.Header.Get("Authorization"), user, password)
	}))
	defer srv.Close()
	for name, config := range map[string]*rest.Config{
		"token":    {Host: srv.URL, BearerToken: "hush-hush"},
		"password": {Host: srv.URL, Username: "me", Password: "hush-hush"},
	} {
		c, err := cluster.New("prod", config)
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Resolve(context.Background(), "pods")
		if err == nil || strings.Contains(err.Error(), "hush-hush") || strings.Contains(err.Error(), "bWU6aHVzaC1odXNo") {
			t.Errorf("%s: discovery says %v", name, err)
		}
		resp, err := c.HTTPClient().Get(srv.URL)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || strings.Contains(string(body), "hush-hush") || !strings.Contains(string(body), "[redacted]") || !strings.HasPrefix(string(body), "upstream failed") {
			t.Errorf("%s: the answer is %q, %v", name, body, err)
		}
		if w := resp.Header.Get("Warning"); !strings.Contains(w, "you are") || strings.Contains(w, "hush-hush") || strings.Contains(w, "bWU6aHVzaC1odXNo") {
			t.Errorf("%s: the warning is %q", name, w)
		}
		c.Close()
	}

	// A success is what it is.
	status = http.StatusOK
	c, err := cluster.New("prod", &rest.Config{Host: srv.URL, BearerToken: "hush-hush"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	resp, err := c.HTTPClient().Get(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, _ := io.ReadAll(resp.Body); !strings.Contains(string(body), "Bearer hush-hush") {
		t.Errorf("an answer that is a success has been changed: %q", body)
	}
	if w := resp.Header.Get("Warning"); strings.Contains(w, "hush-hush") {
		t.Errorf("the warning of a success is %q", w)
	}
}
