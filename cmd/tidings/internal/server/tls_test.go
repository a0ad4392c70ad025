package server_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/tidings-io/tidings/cmd/tidings/internal/access"
	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
	"github.com/tidings-io/tidings/cmd/tidings/internal/server"
	"github.com/tidings-io/tidings/internal/controlplane"
)

// authority signs certificates of clients.
type authority struct {
	testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newAuthority(tb testing.TB, name string) *authority {
	tb.Helper()
	a := &authority{TB: tb}
	a.key = newKey(tb)
	der := a.sign(&x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}, a.key)
	var err error
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		tb.Fatal(err)
	}
	a.pem = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return a
}

func newKey(tb testing.TB) *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	return key
}

func (a *authority) sign(c *x509.Certificate, key *ecdsa.PrivateKey) []byte {
	if c.NotBefore.IsZero() {
		c.NotBefore = time.Now().Add(-time.Hour)
	}
	if c.NotAfter.IsZero() {
		c.NotAfter = time.Now().Add(time.Hour)
	}
	parent := a.cert
	if parent == nil {
		parent = c
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, a.key)
	if err != nil {
		a.Fatal(err)
	}
	return der
}

// client makes the certificate of a client and its key, in PEM.
func (a *authority) client(c *x509.Certificate) (cert, key []byte) {
	a.Helper()
	c.SerialNumber = big.NewInt(2)
	if c.ExtKeyUsage == nil {
		c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	}
	k := newKey(a)
	der, err := x509.MarshalECPrivateKey(k)
	if err != nil {
		a.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.sign(c, k)}), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
}

// overTLS is a server with a generated certificate, and the config of a client that
// trusts it.
func overTLS(t *testing.T, cp *controlplane.Cluster) (*rig, *rest.Config) {
	t.Helper()
	gate, err := access.NewGate(access.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(gate.Close)
	config, ca, err := server.GenerateTLS([]string{"localhost", "127.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	r := serve(t, nil, cp.AdminConfig(), options{server: server.Options{Gate: gate, TLS: config}})
	r.url = strings.Replace(r.url, "http:", "https:", 1)
	return r, &rest.Config{Host: r.url, TLSClientConfig: rest.TLSClientConfig{CAData: ca}}
}

// review asks a server for the client's own user.
func review(t *testing.T, config *rest.Config, headers http.Header) (code int, user any) {
	t.Helper()
	a := newAPI(t, config)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, config.Host+"/apis/authentication.k8s.io/v1/selfsubjectreviews", strings.NewReader(`{"kind":"SelfSubjectReview","apiVersion":"authentication.k8s.io/v1"}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = headers.Clone()
	if req.Header == nil {
		req.Header = http.Header{}
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := a.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var out struct {
		Status  any
		Message string
	}
	if err := json.NewDecoder(resp.Body).Decode(&out); err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode >= 300 {
		return resp.StatusCode, out.Message
	}
	return resp.StatusCode, out.Status
}

// Credentials mean the same user to the API server and to the mirror: certificates,
// tokens and impersonation.
func TestCallersAreTheAPIServersOwn(t *testing.T) {
	ca, other := newAuthority(t, "clients"), newAuthority(t, "others")
	file := filepath.Join(t.TempDir(), "clients.crt")
	if err := os.WriteFile(file, ca.pem, 0o600); err != nil {
		t.Fatal(err)
	}
	cp := controlplane.Start(t, controlplane.WithAPIServerFlags("--client-ca-file="+file, "--anonymous-auth=false"))
	admin := newAPI(t, cp.AdminConfig())
	// The API server publishes its authorities soon after it is ready; that there are none is believed for a minute.
	eventually(t, "the authorities of clients are published", func() bool {
		return strings.Contains(fmt.Sprint(admin.do("GET", "/api/v1/namespaces/kube-system/configmaps", "")), "client-ca-file")
	})
	r, mirrored := overTLS(t, cp)
	uid := pkix.AttributeTypeAndValue{Type: []int{1, 3, 6, 1, 4, 1, 57683, 2}, Value: "uid-1"}
	type client struct {
		token     string
		cert, key []byte
	}
	with := func(a *authority, c *x509.Certificate) client {
		cert, key := a.client(c)
		return client{cert: cert, key: key}
	}
	clients := map[string]client{
		"token":       {token: "namespaced-user-token"},
		"wrong":       {token: "wrong"},
		"none":        {},
		"person":      with(ca, &x509.Certificate{Subject: pkix.Name{CommonName: "jane", Organization: []string{"devs", "ops"}}}),
		"with uid":    with(ca, &x509.Certificate{Subject: pkix.Name{CommonName: "jane", ExtraNames: []pkix.AttributeTypeAndValue{uid}}}),
		"master":      with(ca, &x509.Certificate{Subject: pkix.Name{CommonName: "root", Organization: []string{"system:masters"}}}),
		"no name":     with(ca, &x509.Certificate{Subject: pkix.Name{Organization: []string{"system:masters"}}}),
		"expired":     with(ca, &x509.Certificate{Subject: pkix.Name{CommonName: "jane"}, NotAfter: time.Now().Add(-time.Minute)}),
		"of a server": with(ca, &x509.Certificate{Subject: pkix.Name{CommonName: "jane"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}),
		"of others":   with(other, &x509.Certificate{Subject: pkix.Name{CommonName: "jane", Organization: []string{"system:masters"}}}),
	}
	both := with(other, &x509.Certificate{Subject: pkix.Name{CommonName: "jane"}})
	both.token = "admin-token"
	clients["of others, and a token"] = both
	behalf := []http.Header{
		{},
		{"Impersonate-User": {"bob"}},
		{"Impersonate-User": {"bob"}, "Impersonate-Group": {"devs", "ops"}, "Impersonate-Uid": {"7"}, "Impersonate-Extra-Scopes": {"a", "b"}},
		{"Impersonate-User": {"bob"}, "Impersonate-Group": {"system:authenticated"}},
		{"Impersonate-User": {"system:serviceaccount:team-a:robot"}},
		{"Impersonate-User": {"system:serviceaccount:team-a:robot"}, "Impersonate-Group": {"devs"}},
		{"Impersonate-User": {"system:anonymous"}},
	}
	known := 0
	for name, c := range clients {
		for _, headers := range behalf {
			there := &rest.Config{Host: cp.URL(), BearerToken: c.token, TLSClientConfig: rest.TLSClientConfig{CAData: cp.AdminConfig().CAData, CertData: c.cert, KeyData: c.key}}
			here := rest.CopyConfig(mirrored)
			here.BearerToken, here.CertData, here.KeyData = c.token, c.cert, c.key
			wantCode, want := review(t, there, headers)
			code, got := review(t, here, headers)
			if code == http.StatusForbidden && len(headers) > 0 {
				got, want = nil, nil // since 1.35 the API server tries finer rights than to impersonate as well, and names those
			}
			if code != wantCode || !reflect.DeepEqual(got, want) {
				t.Errorf("%s on behalf of %v:\n     here %d %v\nupstream %d %v", name, headers, code, got, wantCode, want)
			}
			if code == http.StatusCreated {
				known++
			}
		}
	}
	if known < 15 {
		t.Errorf("only %d were known at all", known)
	}

	// Rights of certificates, by themselves and as the caller asks about them.
	here := func(name string) *api {
		config := rest.CopyConfig(mirrored)
		config.CertData, config.KeyData = clients[name].cert, clients[name].key
		return newAPI(t, config)
	}
	admin.do("POST", "/api/v1/namespaces/team-a/configmaps", `{"metadata":{"name":"for-root"}}`)
	if out := here("master").do("GET", "/configmaps", ""); !strings.Contains(fmt.Sprint(out), "for-root") {
		t.Errorf("a member of system:masters: %v", out)
	}
	if code, _ := status(t, here("person").client, "GET", r.url+"/configmaps", ""); code != http.StatusForbidden {
		t.Errorf("jane: %d", code)
	}
	review := `{"kind":"SelfSubjectAccessReview","apiVersion":"authorization.k8s.io/v1","spec":{"resourceAttributes":{"verb":"list","resource":"configmaps"}}}`
	for name, want := range map[string]bool{"master": true, "person": false} {
		out := here(name).do("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review)
		if got := out["status"].(map[string]any)["allowed"]; got != want {
			t.Errorf("%s asks about itself: %v", name, out)
		}
	}
	rules := here("person").do("POST", "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", `{"kind":"SelfSubjectRulesReview","apiVersion":"authorization.k8s.io/v1","spec":{"namespace":"team-a"}}`)
	if s := rules["status"].(map[string]any); s["incomplete"] != true || s["evaluationError"] == "" {
		t.Errorf("the rules of who shows a certificate: %v", rules)
	}

	// kubectl, which knows nothing of all this.
	config := rest.CopyConfig(mirrored)
	config.BearerToken = "namespaced-user-token"
	path := filepath.Join(t.TempDir(), "kubeconfig")
	r.must(controlplane.WriteKubeconfig(path, config))
	for args, want := range map[string]string{
		"auth can-i list pods -n team-a": "yes", "auth can-i list pods -n default": "no", "auth whoami -o jsonpath={.status.userInfo.username}": "namespaced-user",
	} {
		out, err := cp.KubectlCommand(t.Context(), path, strings.Fields(args)...).CombinedOutput()
		if !slices.Contains(strings.Fields(string(out)), want) {
			t.Errorf("kubectl %s: %s %v", args, out, err)
		}
	}
	if log := r.log.String(); strings.Contains(log, "-token") {
		t.Error("a token is in the log")
	}
}

// Without authentication callers have the mirror's rights, and a self review returns
// those.
func TestSelfReviewsWithoutAuthentication(t *testing.T) {
	cp := controlplane.Shared(t)
	r := serve(t, nil, cp.NamespacedUserConfig(), options{})
	code, user := review(t, &rest.Config{Host: r.url}, nil)
	if !strings.Contains(fmt.Sprint(user), "namespaced-user") || code != http.StatusCreated {
		t.Errorf("%d %v", code, user)
	}
}

func TestHTTP2OverTLS(t *testing.T) {
	cp := controlplane.Shared(t)
	_, config := overTLS(t, cp)
	config.BearerToken = "admin-token"
	a := newAPI(t, config)
	resp, err := a.client.Get(config.Host + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.ProtoMajor != 2 || resp.TLS == nil || resp.TLS.Version < tls.VersionTLS12 {
		t.Errorf("%s, %+v", resp.Proto, resp.TLS)
	}
}

// The files of a certificate can be replaced without a restart.
func TestCertificatesAreReloaded(t *testing.T) {
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	a := newAuthority(t, "servers")
	write := func(name string) {
		t.Helper()
		cert, key := a.client(&x509.Certificate{Subject: pkix.Name{CommonName: name}, DNSNames: []string{"localhost"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
		for file, content := range map[string][]byte{certFile: cert, keyFile: key} {
			if err := os.WriteFile(file, content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := server.LoadTLS(certFile, keyFile, slog.Default()); err == nil || !strings.Contains(err.Error(), certFile) {
		t.Errorf("files that are not there: %v", err)
	}
	write("first")
	var logged bytes.Buffer
	log := slog.New(slog.NewTextHandler(&logged, nil))
	config, err := server.LoadTLS(certFile, keyFile, log)
	if err != nil {
		t.Fatal(err)
	}
	served := func() string {
		cert, err := config.GetCertificate(nil)
		if err != nil {
			t.Fatal(err)
		}
		leaf, err := x509.ParseCertificate(cert.Certificate[0])
		if err != nil {
			t.Fatal(err)
		}
		return leaf.Subject.CommonName
	}
	if served() != "first" {
		t.Error(served())
	}
	if err := os.WriteFile(keyFile, []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is noticed that the key is broken", func() bool { return served() == "first" && strings.Contains(logged.String(), "stays in use") })
	write("second")
	eventually(t, "the new one is served", func() bool { return served() == "second" })
}

func TestListensAnywhereWithAuthenticationAndTLS(t *testing.T) {
	m, err := mirror.New(mirror.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close(context.Background())
	gate, err := access.NewGate(access.Options{})
	if err != nil {
		t.Fatal(err)
	}
	config, ca, err := server.GenerateTLS(server.HostsOf(&net.TCPAddr{IP: net.IPv4zero}))
	if err != nil {
		t.Fatal(err)
	}
	if f := server.Fingerprint(ca); len(f) != 95 || server.Fingerprint([]byte("x")) != "" {
		t.Errorf("fingerprint %q", f)
	}
	for name, c := range map[string]struct {
		options server.Options
		refusal string
	}{
		"plaintext with authentication": {server.Options{Gate: gate}, "without TLS"},
		"TLS without authentication":    {server.Options{TLS: config}, "--authentication upstream"},
		"both":                          {server.Options{Gate: gate, TLS: config}, ""},
	} {
		s, err := server.New(m, c.options)
		if err != nil {
			t.Fatal(err)
		}
		l, err := net.Listen("tcp", "0.0.0.0:0")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Serve(ctx, l) }()
		if c.refusal == "" {
			roots := x509.NewCertPool()
			roots.AppendCertsFromPEM(ca)
			client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}
			resp, err := client.Get(fmt.Sprintf("https://127.0.0.1:%d/healthz", l.Addr().(*net.TCPAddr).Port))
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			client.CloseIdleConnections()
			cancel()
		}
		if err := <-done; c.refusal == "" && err != nil || c.refusal != "" && (err == nil || !strings.Contains(err.Error(), c.refusal)) {
			t.Errorf("%s: %v", name, err)
		}
		cancel()
	}
}
