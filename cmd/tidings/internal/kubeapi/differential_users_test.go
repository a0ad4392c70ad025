package kubeapi_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	mathrand "math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"

	"github.com/tidings-io/tidings/cmd/tidings/internal/access"
	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
	"github.com/tidings-io/tidings/cmd/tidings/internal/server"
	"github.com/tidings-io/tidings/internal/controlplane"
)

// clientAuthority makes the files of a certificate authority that the API server trusts,
// and of a client certificate that it has signed.
func clientAuthority(t *testing.T, name string) (ca string, cert, key []byte) {
	t.Helper()
	newKey := func() *ecdsa.PrivateKey {
		k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	caKey, clientKey := newKey(), newKey()
	parent := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "clients"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	sign := func(c *x509.Certificate, k *ecdsa.PrivateKey) []byte {
		der, err := x509.CreateCertificate(rand.Reader, c, parent, &k.PublicKey, caKey)
		if err != nil {
			t.Fatal(err)
		}
		return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	}
	ca = filepath.Join(t.TempDir(), "clients.crt")
	if err := os.WriteFile(ca, sign(parent, caKey), 0o600); err != nil {
		t.Fatal(err)
	}
	cert = sign(&x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		NotBefore: parent.NotBefore, NotAfter: parent.NotAfter,
	}, clientKey)
	der, err := x509.MarshalECPrivateKey(clientKey)
	if err != nil {
		t.Fatal(err)
	}
	return ca, cert, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
}

// TestDifferentialOfUsers sends the same requests to an API server and to its mirror, which
// authenticates callers and passes other requests through, as users with all, some and no
// rights. Status, media type and body must be the same, except for the differences listed
// in docs/server.md.
func TestDifferentialOfUsers(t *testing.T) {
	ca, cert, key := clientAuthority(t, string(controlplane.NamespacedUser))
	cp := controlplane.Start(t, controlplane.WithAPIServerFlags("--client-ca-file="+ca))
	gate, err := access.NewGate(access.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(gate.Close)
	tlsConfig, authority, err := server.GenerateTLS([]string{"localhost", "127.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	r := start(t, cp.AdminConfig(), mirror.Options{Resources: []string{mirror.Everything, "secrets"}}, server.Options{Gate: gate, Passthrough: true, TLS: tlsConfig})
	p := populate(t, r.theirs)
	const rbac = "/apis/rbac.authorization.k8s.io/v1/"
	r.theirs.do("POST", rbac+"clusterroles", `{"metadata":{"name":"narrow"},"rules":[
		{"apiGroups":[""],"verbs":["get","list","watch"],"resources":["configmaps"],"resourceNames":["configmap-1","configmap-2"]},
		{"apiGroups":[""],"verbs":["list"],"resources":["pods"]},{"apiGroups":[""],"verbs":["watch"],"resources":["services"]},
		{"apiGroups":["kubeapi.example.com"],"verbs":["get","list","watch"],"resources":["*"]}]}`)
	r.theirs.do("POST", rbac+"clusterrolebindings", `{"metadata":{"name":"narrow"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"narrow"},"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"narrow"}]}`)

	rnd, n := seeded(t, 2000)
	callers := []caller{
		{name: "admin", config: rest.Config{BearerToken: "admin-token"}, share: 4},
		{name: "namespaced user", config: rest.Config{BearerToken: "namespaced-user-token"}, share: 4},
		{name: "namespaced user by certificate", config: rest.Config{TLSClientConfig: rest.TLSClientConfig{CertData: cert, KeyData: key}}, certificate: true, share: 2},
		{name: "user of some names and kinds, by impersonation", config: rest.Config{BearerToken: "admin-token", Impersonate: rest.ImpersonationConfig{UserName: "narrow"}}, share: 2},
		{name: "nobody", config: rest.Config{BearerToken: "nobody-token"}, share: 2},
		{name: "stranger", config: rest.Config{BearerToken: "wrong"}, unknown: true, share: 1},
	}
	shares := 0
	for _, c := range callers {
		shares += c.share
	}
	known := differences(t)
	var all []*differential
	for _, c := range callers {
		to := func(host string, ca []byte) *api {
			config := rest.CopyConfig(&c.config)
			config.Host, config.CAData, config.QPS = host, ca, -1
			return newAPI(t, config)
		}
		d := &differential{TB: t, ours: to(r.ours.config.Host, authority), theirs: to(cp.URL(), cp.AdminConfig().CAData), rnd: mathrand.New(mathrand.NewPCG(rnd.Uint64(), 1)), codes: map[int]int{}, allowed: map[string]int{}, caller: c, known: known}
		all = append(all, d)
	}
	eventually(t, "the mirror knows who may do what", func() bool {
		return all[3].ours.get(example+"/gadgets").code == http.StatusOK
	})

	ctx, cancel := context.WithCancel(t.Context())
	quiet := make(chan struct{})
	go func() {
		defer close(quiet)
		p.live(ctx, mathrand.New(mathrand.NewPCG(5, 6)))
	}()
	for _, d := range all {
		for range n * d.caller.share / shares {
			d.compare(generateAny(d.rnd, p, &d.seen))
			if d.failed > 20 {
				break
			}
		}
	}
	cancel()
	<-quiet
	if t.Failed() {
		return
	}
	// Watches of a cluster that no longer changes: how many events arrive before the
	// timeout must not matter.
	var group errgroup.Group
	group.SetLimit(32)
	for _, d := range all {
		for range n * d.caller.share / shares / 10 {
			q := generateWatch(d.rnd, p, &all[0].seen)
			group.Go(func() error { d.compareWatch(q); return nil })
		}
	}
	_ = group.Wait()
	for _, d := range all {
		t.Logf("%s: by status %v; %d asked again because of what happened in between; allowed to differ: %v", d.caller.name, d.codes, d.again, d.allowed)
	}
	for i, want := range []map[int]int{{200: 300, 400: 30, 404: 20, 410: 1}, {200: 100, 403: 100}, {200: 30, 403: 50}, {200: 30, 403: 50}, {200: 10, 403: 100}, {401: 50}} {
		for code, at := range want {
			if all[i].codes[code] < at*n/8000 {
				t.Errorf("%s: %d was answered %d times: that shows little", all[i].caller.name, code, all[i].codes[code])
			}
		}
	}
}

// caller is a user of the cluster.
type caller struct {
	name        string
	config      rest.Config
	certificate bool // and nothing that could be handed on
	unknown     bool
	share       int // of the requests
}

// exception is a known difference. Its text is the beginning of an item in docs/server.md.
type exception struct {
	text    string
	applies func(caller, ask) bool
}

var exceptions = []exception{
	{"`/healthz`, `/livez` and `/readyz` are the mirror's own", func(c caller, q ask) bool {
		page := strings.HasPrefix(q.path, "/healthz") || strings.HasPrefix(q.path, "/livez") || strings.HasPrefix(q.path, "/readyz")
		return page && (c.unknown || q.path != "/healthz" && q.path != "/livez" && q.path != "/readyz" || len(q.query) > 0)
	}},
	{"Paths that are not of the API", func(_ caller, q ask) bool {
		first, _, _ := strings.Cut(strings.TrimPrefix(q.path, "/"), "/")
		switch first {
		case "api", "apis", "openapi", "version", "healthz", "livez", "readyz":
			return false
		}
		return true
	}},
	{"Who shows a client certificate is handed on nowhere", func(c caller, q ask) bool {
		return c.certificate && handedOn(q)
	}},

	// These are considered where answers are compared, and requests generated.
	{"Watches reach back as far as the mirror has retained changes", never},
	{"Descriptions of columns", never},
	{"Kinds without a Go type in client-go", never},
	{"`current:` in the message of a `504`", never},
	{"Pages of a list over all namespaces", never},
}

func never(caller, ask) bool { return false }

// handedOn reports whether a mirror of everything passes a request through.
func handedOn(q ask) bool {
	for _, part := range []string{"/status", "/log", "/scale", "nonsense", "/v9/", "metrics.k8s.io", "tokenreviews", "bindings"} {
		if strings.Contains(q.path, part) {
			return true
		}
	}
	return false
}

// differences are the exceptions, which must all be documented.
func differences(t *testing.T) []exception {
	t.Helper()
	page, err := os.ReadFile("../../../../docs/server.md")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Join(strings.Fields(string(page)), " ")
	for _, e := range exceptions {
		if !strings.Contains(text, "- "+e.text) {
			t.Errorf("docs/server.md does not list the difference %q", e.text)
		}
	}
	return exceptions
}
