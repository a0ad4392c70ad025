package cli_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/klog/v2"

	"github.com/tidings-io/tidings/internal/fakeapi"
	"github.com/tidings-io/tidings/internal/logbook"
)

// Everything that must stay where it is has hush in it, everything that is to
// look like a line of its own is forged.
const (
	mirrorToken = "mirror-hush-token"
	callerToken = "caller-hush-token"
	content     = "content-hush-of-a-secret"
	password    = "password-hush"
	forged      = "x\r\n\x1b[2J\x1b]0;forged\a\u009b31m\u2028time=forged level=ERROR msg=forged\n[+]forged ok\nforged_total 1\n"
)

// hushed are the forms in which what must stay where it is could come out.
func hushed() []string {
	out := []string{"-hush"}
	for _, s := range []string{mirrorToken, callerToken, content, password, "someone:" + password} {
		for _, e := range []*base64.Encoding{base64.StdEncoding, base64.RawURLEncoding} {
			out = append(out, e.EncodeToString([]byte(s)))
		}
	}
	return out
}

// indiscreet is a proxy in front of a cluster that, when it is broken, repeats
// all of the request in what it says went wrong, and more.
type indiscreet struct {
	*httptest.Server
	broken atomic.Int32 // 0: it is not; 1: with a page; 2: with a Status; 3: with what is no JSON
}

func newIndiscreet(t *testing.T, cluster *fakeapi.Cluster) *indiscreet {
	config, stop, err := fakeapi.Serve(context.Background(), cluster)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	target, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }, FlushInterval: -1, Transport: transport, ErrorLog: log.New(io.Discard, "", 0)}
	s := &indiscreet{}
	s.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		kind := s.broken.Load()
		if kind == 0 && strings.HasSuffix(r.URL.Path, "/pods") {
			kind = 2 // which are never mirrored
		}
		// A success is not looked into.
		if kind == 3 {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, forged, r.URL, forged)
			return
		}
		said := func() string {
			body, _ := io.ReadAll(r.Body)
			user, pass, _ := r.BasicAuth()
			return fmt.Sprintf("%s %s %v %s %s:%s %s", forged, r.URL, r.Header, body, user, pass, forged)
		}
		switch kind {
		case 0:
			proxy.ServeHTTP(w, r)
		case 1:
			w.Header().Set("Content-Type", "text/plain")
			w.Header().Set("Warning", `299 - "`+strings.ReplaceAll(r.Header.Get("Authorization"), `"`, "")+` forged"`)
			w.WriteHeader(http.StatusBadGateway)
			fmt.Fprint(w, said())
		default:
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusForbidden)
			_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Reason: metav1.StatusReasonForbidden, Code: http.StatusForbidden, Message: said(),
				Details: &metav1.StatusDetails{Name: forged, Causes: []metav1.StatusCause{{Message: said()}}}})
		}
	}))
	t.Cleanup(s.Close)
	return s
}

// clientKey is a client certificate and the key of it.
func clientKey(t *testing.T) (cert, key []byte) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})
}

// caller asks the server under test.
type caller struct {
	*testing.T
	url    string
	client *http.Client
	said   bytes.Buffer // all answers but those that Secrets were asked for with the right to
}

// ask asks, and expects answers that hold no control characters.
func (c *caller) ask(method, path, token string, header http.Header) (int, string) {
	c.Helper()
	ctx, cancel := context.WithTimeout(c.Context(), 20*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, c.url+path, nil)
	if err != nil {
		c.Fatal(err)
	}
	for k, v := range header {
		req.Header[k] = v
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := c.client.Do(req)
	if err != nil {
		c.Fatalf("%s %s: %v", method, path, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil && resp.StatusCode == http.StatusOK && !strings.Contains(path, "watch") {
		c.Fatalf("%s %s: %v", method, path, err)
	}
	return resp.StatusCode, string(body)
}

// note keeps what was said, and looks whether it stands where it should. JSON has
// control characters escaped but those of the second set.
func (c *caller) note(what, body string) {
	c.Helper()
	if r, found := obeyed(body); found && !(json.Valid([]byte(body)) && r >= 0x80) {
		c.Errorf("%s: a terminal would obey %q in %q", what, r, body)
	}
	for line := range strings.Lines(body) {
		if strings.HasPrefix(strings.TrimSpace(line), "[+]forged") || strings.HasPrefix(line, "forged_total") || strings.HasPrefix(line, "time=forged") {
			c.Errorf("%s: a line of its own is %q", what, line)
		}
	}
	c.said.WriteString(body)
}

// Whatever callers send and clusters answer: no credential and nothing of a Secret
// comes out but in the answer to who may read it, and nobody can have the log, the
// metrics, the checks or a terminal say what they want.
func TestNothingLeaks(t *testing.T) {
	users := map[string]fakeapi.User{mirrorToken: {Name: "mirror"}, callerToken: {Name: "alice"}, "other-hush-token": {Name: "bob"}}
	cluster := fakeapi.New(fakeapi.Options{Users: users, Allow: func(u fakeapi.User, _ fakeapi.Access) bool { return u.Name == "mirror" || u.Name == "alice" }})
	if _, err := cluster.Create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "s"}, Data: map[string][]byte{"password": []byte(content)}}); err != nil {
		t.Fatal(err)
	}
	var warnings logbook.Book // of client-go, which logs by klog
	klog.LogToStderr(false)
	klog.SetOutput(&warnings)
	t.Cleanup(func() { klog.SetOutput(io.Discard) })
	proxy := newIndiscreet(t, cluster)
	cert, key := clientKey(t)
	config := api.NewConfig()
	config.Clusters["x"] = &api.Cluster{Server: proxy.URL, CertificateAuthorityData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: proxy.Certificate().Raw})}
	config.AuthInfos["x"] = &api.AuthInfo{Token: mirrorToken, ClientCertificateData: cert, ClientKeyData: key}
	config.Contexts["x"] = &api.Context{Cluster: "x", AuthInfo: "x"}
	config.CurrentContext = "x"
	w := &world{TB: t, kubeconfig: filepath.Join(t.TempDir(), "kubeconfig")}
	if err := clientcmd.WriteToFile(*config, w.kubeconfig); err != nil {
		t.Fatal(err)
	}
	written, audited := filepath.Join(t.TempDir(), "mirror.yaml"), filepath.Join(t.TempDir(), "audit.log")
	s := w.begin("serve", "--listen", "127.0.0.1:0", "-v", "debug", "--authentication", "upstream", "--passthrough", "--write-kubeconfig", written, "--audit-log", audited, "--resource", "secrets", "--resource", "pods", "--resource", "*")
	var logged []string
	for len(logged) == 0 || !strings.Contains(logged[len(logged)-1], "msg=serving") {
		logged = append(logged, s.remark())
	}
	served, err := clientcmd.BuildConfigFromFlags("", written)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	defer transport.CloseIdleConnections()
	c := &caller{T: t, url: served.Host, client: &http.Client{Transport: transport}}

	const path = "/api/v1/namespaces/default/secrets/s"
	for _, form := range []string{"application/json", "application/vnd.kubernetes.protobuf", "application/yaml", "application/json;as=Table;v=v1;g=meta.k8s.io"} {
		if code, body := c.ask("GET", path, callerToken, http.Header{"Accept": {form}}); code != http.StatusOK {
			t.Fatalf("who may read the Secret is answered %d %s", code, body)
		}
	}
	paths := []string{
		path, "/secrets", "/core/v1/secrets/default/s", "/", "/clusters", "/clusters/x", "/metrics", "/readyz?verbose", "/healthz?verbose", "/debug/pprof/", "/debug/vars", "/version", "/apis",
		"/cm?source=live", "/api/v1/namespaces/default/configmaps", "/openapi/v2",
	}
	plain := len(paths)
	evil := url.PathEscape(forged)
	paths = append(paths, "/"+evil, "/api/v1/namespaces/"+evil+"/configmaps", "/clusters/"+evil+"/pods", "/core/v1/configmaps/default/"+evil, "/core/v1/secrets/default/"+evil, "/api/v1/namespaces/default/secrets/"+evil)
	for _, evil := range []string{url.QueryEscape(forged), url.QueryEscape(callerToken)} {
		for _, name := range []string{"labelSelector", "fieldSelector", "labels[a]", "limit", "continue", "resourceVersion", "since", "namespace", "access_token", "nonsense", "watch", "source", "exclude"} {
			if paths = append(paths, "/cm?"+name+"="+evil); name != "watch" { // which is one there
				paths = append(paths, "/api/v1/configmaps?"+name+"="+evil)
			}
		}
		paths = append(paths, "/readyz?verbose&exclude="+evil)
	}
	wrong := []http.Header{
		{}, {"Authorization": {"Bearer wrong-hush-token"}}, {"Authorization": {"Basic " + base64.StdEncoding.EncodeToString([]byte("someone:"+password))}}, {"Authorization": {"hush -hush -hush"}},
		{"Authorization": {"Bearer other-hush-token"}}, {"Authorization": {"Bearer " + callerToken}, "Impersonate-User": {"someone"}},
		{"Upgrade": {"websocket"}, "Connection": {"Upgrade"}, "Sec-Websocket-Protocol": {"base64url.bearer.authorization.k8s.io." + base64.RawURLEncoding.EncodeToString([]byte("wrong-hush-token"))}},
	}
	round := func() {
		for i, path := range paths {
			for _, header := range wrong {
				if i < plain {
					code, body := c.ask("GET", path, "", header)
					c.note(fmt.Sprintf("GET %s, %d", path, code), body)
				}
			}
			code, body := c.ask("GET", path, callerToken, http.Header{"User-Agent": {"-hush"}, "Accept": {"application/json;as=" + url.PathEscape(forged) + ",*/*"}, "X-Request-Id": {"-hush"}})
			switch {
			case code == http.StatusOK && (strings.Contains(path, "secrets") || slices.Contains([]string{"/openapi/v2", "/version", "/apis"}, path)):
				continue // she may; the cluster's own words
			case code == http.StatusOK && path == "/metrics":
				c.metrics(body)
			case strings.Contains(path, callerToken):
				body = strings.ReplaceAll(body, callerToken, "[what was asked for]")
			}
			c.note(fmt.Sprintf("GET %s by who may, %d", path, code), body)
		}
		// What is handed on is the cluster's answer to the caller, with what the
		// caller has sent: nothing of the mirror's is in there.
		for method, path := range map[string]string{"POST": path + "x", "DELETE": path + "x", "PATCH": path + "x", "GET": "/api/v1/namespaces/default/pods/p/log", "PUT": "/apis/" + evil + "/v1/things"} {
			if code, body := c.ask(method, path, callerToken, nil); strings.Contains(body, mirrorToken) {
				t.Errorf("%s %s: %d, %q", method, path, code, body)
			}
		}
	}
	round()
	for _, header := range []string{"X-A: " + forged, "Accept: a\rb", "Host: " + forged, "Authorization: Bearer wrong-hush-token\x1b[2J"} {
		c.raw("GET /cm HTTP/1.1\r\nHost: localhost\r\n" + header + "\r\n\r\n")
	}
	for kind := int32(1); kind <= 3; kind++ {
		proxy.broken.Store(kind)
		proxy.CloseClientConnections()
		round()
	}
	for again := false; !again; {
		line := s.remark()
		logged = append(logged, line)
		again = strings.Contains(line, "will try again")
	}
	s.stop()
	for line := range s.stderr {
		logged = append(logged, line)
	}

	klog.Flush()
	logged = append(logged, strings.Split(warnings.String(), "\n")...)
	for _, line := range logged {
		c.note("the log", line)
		if !strings.HasPrefix(line, "time=20") && !strings.Contains(line, `warnings.go:107] "Warning: `) && strings.Contains(line, "forged") {
			t.Errorf("a line of the log is %q", line)
		}
	}
	kubeconfig, err := os.ReadFile(written)
	if err != nil {
		t.Fatal(err)
	}
	c.note("the kubeconfig for others", string(kubeconfig))
	c.auditLog(audited)
	said := c.said.String()
	for _, secret := range append(hushed(), strings.Split(strings.TrimSpace(string(key)), "\n")[1:3]...) {
		if i := strings.Index(said, secret); i >= 0 {
			t.Errorf("%q is told: %q", secret, said[max(0, i-500):min(len(said), i+100)])
		}
	}
	for _, says := range []string{"level=DEBUG", "will try again", "forged", "[redacted]", "Warning: Bearer [redacted]"} {
		if !strings.Contains(said, says) {
			t.Errorf("nothing of this has come to be: %s", says)
		}
	}
}

// auditLog looks for secrets in the audit log. What a client calls itself is in it.
func (c *caller) auditLog(path string) {
	content, err := os.ReadFile(path)
	if err != nil {
		c.Fatal(err)
	}
	events := 0
	for line := range strings.Lines(string(content)) {
		if events++; !json.Valid([]byte(line)) {
			c.Errorf("a line of the audit log is %q", line)
		}
		c.note("the audit log", strings.ReplaceAll(line, `"userAgent":"-hush"`, ""))
	}
	if events < 100 || !strings.Contains(string(content), `"username":"alice"`) {
		c.Errorf("the audit log has %d events", events)
	}
}

// raw sends bytes and reads what comes.
func (c *caller) raw(request string) {
	c.Helper()
	conn, err := tls.Dial("tcp", strings.TrimPrefix(c.url, "https://"), &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		c.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.WriteString(conn, request); err != nil {
		c.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		if _, ok := err.(net.Error); ok {
			return // refused without a word
		}
		c.Fatalf("%q is answered with %v", request, err)
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	c.note("raw", string(body))
}

// Metrics stay metrics.
func (c *caller) metrics(body string) {
	if _, err := promlint.New(strings.NewReader(body)).Lint(); err != nil {
		c.Errorf("metrics: %v", err)
	}
}
