package kubeapi_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"mime"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/tidwall/gjson"
	"golang.org/x/net/http/httpguts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
	"github.com/tidings-io/tidings/cmd/tidings/internal/server"
	"github.com/tidings-io/tidings/internal/fakeapi"
)

// asked is a server without a connection, and its cluster.
type asked struct {
	http.Handler
	cluster *fakeapi.Cluster
}

func newAsked(f *testing.F) asked {
	f.Helper()
	r, c := inMemory(f, mirror.Options{}, server.Options{})
	for _, name := range []string{"a", "b", "c", "d"} {
		put(f, c, name, "1")
	}
	if _, err := c.Create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: "hidden"}}); err != nil {
		f.Fatal(err)
	}
	s, err := server.New(r.mirror, server.Options{})
	if err != nil {
		f.Fatal(err)
	}
	return asked{s.Handler(), c}
}

// get sends a request with one header, and ends a watch once it has begun.
func (a asked) get(t *testing.T, path string, query url.Values, header http.Header) *httptest.ResponseRecorder {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r := &http.Request{
		Method: http.MethodGet, URL: &url.URL{Path: path, RawQuery: query.Encode()}, Host: "localhost", Header: header,
		Body: http.NoBody, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}
	w := httptest.NewRecorder()
	var out http.ResponseWriter = w
	if query.Has("watch") {
		out = hangUp{w, cancel}
	}
	a.ServeHTTP(out, r.WithContext(ctx))
	return w
}

// hangUp is a client that leaves after the first write.
type hangUp struct {
	*httptest.ResponseRecorder
	cancel func()
}

func (h hangUp) Write(b []byte) (int, error) {
	h.cancel()
	return h.ResponseRecorder.Write(b)
}

// FuzzAccept requests objects, lists and watches with arbitrary Accept headers. The answer
// has the form of its media type, or is an error that lists the supported forms.
func FuzzAccept(f *testing.F) {
	for _, seed := range []string{
		"", "*/*", "application/json", "application/yaml", "application/vnd.kubernetes.protobuf", "application/cbor", "text/html",
		"application/json;as=Table;v=v1;g=meta.k8s.io,application/json", "application/yaml;as=Table;v=v1;g=meta.k8s.io",
		"application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1", "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
		"application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1beta1;q=0.1, application/yaml;q=0.9", "application/json;stream=watch", "application/vnd.kubernetes.protobuf;stream=watch",
		"application/json;profile=nomatch", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList", "application/json;pretty=1", "*/json;q=2", ";;;", ",", "a/b;c=\"d", "application/json;as=Table;as=Table",
		strings.Repeat("application/json,", 500), "application/json;as=" + strings.Repeat("x", 2000), "application/json;v=\u2028",
	} {
		f.Add(seed, uint8(len(seed)))
	}
	a := newAsked(f)
	f.Fuzz(func(t *testing.T, accept string, of uint8) {
		if !httpguts.ValidHeaderFieldValue(accept) {
			return // net/http has refused the request
		}
		targets := []struct {
			path  string
			query url.Values
		}{
			{configMaps, nil}, {configMaps, url.Values{"resourceVersion": {"0"}}}, {configMaps + "/a", nil}, {configMaps + "/none", nil},
			{configMaps, url.Values{"watch": {"1"}, "resourceVersion": {"0"}}}, {"/api/v1", nil}, {"/apis", nil}, {"/version", nil},
		}
		target := targets[int(of)%len(targets)]
		w := a.get(t, target.path, target.query, http.Header{"Accept": {accept}})
		if !slices.Contains([]int{http.StatusOK, http.StatusNotFound, http.StatusNotAcceptable}, w.Code) {
			t.Fatalf("Accept %q of %s?%s: %d %s", accept, target.path, target.query.Encode(), w.Code, w.Body)
		}
		said := w.Header().Get("Content-Type")
		if strings.ContainsAny(said, "\r\n\x00") {
			t.Fatalf("Accept %q of %s is answered with Content-Type %q", accept, target.path, said)
		}
		if target.query.Has("watch") && w.Code == http.StatusOK {
			return // broken off
		}
		media, _, err := mime.ParseMediaType(said)
		if err != nil {
			t.Fatalf("Accept %q of %s is answered with Content-Type %q: %v", accept, target.path, said, err)
		}
		body := w.Body.Bytes()
		switch media {
		case "application/json":
			if !json.Valid(body) {
				t.Fatalf("Accept %q of %s: not JSON: %s", accept, target.path, body)
			}
		case "application/yaml":
			if err := yaml.Unmarshal(body, &map[string]any{}); err != nil {
				t.Fatalf("Accept %q of %s: not YAML: %v: %s", accept, target.path, err, body)
			}
		case "application/vnd.kubernetes.protobuf":
			if !bytes.HasPrefix(body, []byte("k8s\x00")) {
				t.Fatalf("Accept %q of %s: not protobuf: %q", accept, target.path, body)
			}
		default:
			t.Fatalf("Accept %q of %s is answered with Content-Type %q", accept, target.path, said)
		}
	})
}

// FuzzContinueToken lists with arbitrary continue tokens, encoded or not. Whatever a token
// says, a page has objects of the requested namespace only, no more than requested, in
// order. The error of an expired token has a valid one.
func FuzzContinueToken(f *testing.F) {
	for _, seed := range []string{
		"", "e30", `{}`, `{"v":"meta.k8s.io/v1","rv":-1,"start":"/a\u0000"}`, `{"v":"meta.k8s.io/v1","rv":-1,"start":"a"}`, `{"v":"meta.k8s.io/v1","rv":1,"start":"/b\u0000"}`,
		`{"v":"meta.k8s.io/v1","rv":2,"start":"/../other/secret\u0000"}`, `{"v":"meta.k8s.io/v1","rv":-1,"start":"/../other"}`, `{"v":"meta.k8s.io/v1","rv":-1,"start":"/other/hidden"}`,
		`{"v":"meta.k8s.io/v1","rv":0,"start":"/a"}`, `{"v":"meta.k8s.io/v1","rv":9223372036854775807,"start":"/a"}`, `{"v":"meta.k8s.io/v1","rv":-9223372036854775808,"start":"/a"}`,
		`{"v":"meta.k8s.io/v1","rv":1e3,"start":"/a"}`, `{"v":"v1","rv":-1,"start":"/a"}`, `{"v":"meta.k8s.io/v1","rv":-1,"start":""}`, `{"v":"meta.k8s.io/v1","rv":-1,"start":"/\ud800"}`,
		`[[[[[[[[`, `{"v":"meta.k8s.io/v1","rv":-1,"start":"/` + strings.Repeat("a/", 1000) + `b"}`, "\x00", "not base64!",
	} {
		f.Add(seed, true, uint8(2))
		f.Add(seed, false, uint8(0))
	}
	a := newAsked(f)
	f.Fuzz(func(t *testing.T, token string, inside bool, limit uint8) {
		if inside {
			token = base64.RawURLEncoding.EncodeToString([]byte(token))
		}
		if raw, err := base64.RawURLEncoding.DecodeString(token); err == nil && gjson.GetBytes(raw, "rv").Num > 5 {
			return // it would be waited for
		}
		query := url.Values{"limit": {strconv.Itoa(int(limit))}}
		if token != "" {
			query.Set("continue", token)
		}
		// Twice: after an expired token, go on with the token in its error.
		for range 2 {
			w := a.get(t, configMaps, query, http.Header{"Accept": {"application/json"}})
			answer := gjson.ParseBytes(w.Body.Bytes())
			if !gjson.ValidBytes(w.Body.Bytes()) {
				t.Fatalf("token %q: %d, not JSON: %q", token, w.Code, w.Body)
			}
			switch w.Code {
			case http.StatusOK:
				names := []string{}
				for _, o := range answer.Get("items").Array() {
					if at := o.Get("metadata.namespace").Str; at != "default" {
						t.Fatalf("token %q: an object of namespace %s: %s", token, at, o)
					}
					names = append(names, o.Get("metadata.name").Str)
				}
				if !slices.IsSorted(names) || limit > 0 && len(names) > int(limit) {
					t.Fatalf("token %q: a page of %d has %q", token, limit, names)
				}
				return
			case http.StatusBadRequest:
				if answer.Get("kind").Str != "Status" || answer.Get("message").Str == "" {
					t.Fatalf("token %q: %s", token, answer)
				}
				return
			case http.StatusGone: // it is too old
				next := answer.Get("metadata.continue").Str
				if next == "" {
					return
				}
				query.Set("continue", next)
			default:
				t.Fatalf("token %q: %d %s", token, w.Code, answer)
			}
		}
		t.Fatalf("token %q: the token that an answer of 410 came with is not good either", token)
	})
}
