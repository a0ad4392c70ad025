package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/rest"

	"github.com/tidings-io/tidings/cmd/tidings/internal/audit"
	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
	"github.com/tidings-io/tidings/cmd/tidings/internal/server"
	"github.com/tidings-io/tidings/internal/fakeapi"
)

// handler is a server that is called without connections.
func handler(f *testing.F) http.Handler {
	f.Helper()
	c := fakeapi.New(fakeapi.Options{})
	config, stop := fakeapi.InProcess(c)
	f.Cleanup(stop)
	m, err := mirror.New(mirror.Options{})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = m.Close(f.Context()) })
	if err := m.Set(f.Context(), map[string]*rest.Config{"test": config}); err != nil {
		f.Fatal(err)
	}
	eventually(f, "the mirror is connected", func() bool { return m.Status().Clusters[0].Connection.Problem() == "" })
	log := audit.New(auditReader{}, audit.Options{})
	f.Cleanup(func() { _ = log.Close(context.Background()) })
	s, err := server.New(m, server.Options{Audit: log})
	if err != nil {
		f.Fatal(err)
	}
	return s.Handler()
}

// auditReader expects that each line of the audit log is an event in plain ASCII.
type auditReader struct{}

func (auditReader) Write(p []byte) (int, error) {
	for line := range bytes.Lines(p) {
		var e auditv1.Event
		if err := json.Unmarshal(line, &e); err != nil || e.Verb == "" || bytes.ContainsFunc(line[:len(line)-1], func(r rune) bool { return r < ' ' || r > '~' }) {
			panic(fmt.Sprintf("a line of the audit log: %v: %q", err, line))
		}
	}
	return len(p), nil
}

// ask expects a well-formed response to any request.
func ask(t *testing.T, h http.Handler, target *url.URL, header http.Header) *httptest.ResponseRecorder {
	t.Helper()
	r := &http.Request{Method: http.MethodGet, URL: target, Host: "localhost", Header: header, Body: http.NoBody, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r.WithContext(t.Context()))
	if w.Code >= 500 && w.Code != http.StatusServiceUnavailable {
		t.Fatalf("%s: %d %s", target, w.Code, w.Body)
	}
	if w.Header().Get("Content-Type") == "application/json" && !json.Valid(w.Body.Bytes()) {
		t.Fatalf("%s: not JSON: %s", target, w.Body)
	}
	if w.Code >= 400 {
		var p struct{ Error, Reason string }
		if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || p.Error == "" || p.Reason == "" {
			t.Fatalf("%s: %d %s", target, w.Code, w.Body)
		}
	}
	return w
}

func FuzzPath(f *testing.F) {
	h := handler(f)
	for _, seed := range server.Routes {
		f.Add(seed)
	}
	for _, seed := range []string{"", "//", "/pods", "/core/v1/pods/default/x", "/%2f", "/%", "/clusters/", "/clusters//pods", "/core/v1/pods/../..", "/a/b", "/\x00"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, path string) {
		u, err := url.Parse("http://localhost/" + strings.TrimPrefix(path, "/"))
		if err != nil || u.RawQuery != "" {
			return
		}
		ask(t, h, u, http.Header{})
	})
}

func FuzzQuery(f *testing.F) {
	h := handler(f)
	for _, seed := range []string{
		"", "labels[a]=b", "labels[a]=b&labels[c/d]=e", "labels[", "labels[]=", "labelSelector=a in (b,c),!d", "fieldSelector=metadata.name=x,spec.nodeName!=y",
		"limit=1&continue=x", "limit=9223372036854775807", "source=live", "watch=maybe", "%", "a;b", "namespace=../x", "since=1", "tree=true&neighbours=true",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, query string) {
		for _, name := range []string{"watch", "window"} {
			if values, _ := url.ParseQuery(query); values.Get(name) == "true" || values.Get(name) == "1" {
				return // does not end
			}
		}
		ask(t, h, &url.URL{Path: "/pods", RawQuery: query}, http.Header{})
	})
}

func FuzzWindow(f *testing.F) {
	h := handler(f)
	for _, seed := range []string{
		"", "sort=Name&descending=true", "columns=*", "columns=Name,Data", "columns=,", "filter=a+!b", "first=1&count=1", "count=0", "count=501", "first=-1",
		"first=99999999999999999999", "sort=x", "filter=%ff", "visible=true", "namespace=a&visible=true", "at=-1h", "limit=1", "since=1",
		"namespace=a,b", "namespace=a,,B", "columns=.data.v,Name", "columns=.data[*", "clusters=*", "clusters=a*b*,c", "clusters=", "clusters=.&namespace=a,b",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, query string) {
		r := httptest.NewRequest(http.MethodHead, "http://localhost/cm", nil)
		r.URL.RawQuery = "window=true&" + query
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r.WithContext(t.Context()))
		if w.Code != http.StatusOK && w.Code != http.StatusBadRequest && w.Code != http.StatusRequestURITooLong && (w.Code != http.StatusNotFound || !r.URL.Query().Has("clusters")) {
			t.Fatalf("%q: %d %s", query, w.Code, w.Body)
		}
	})
}

func FuzzLastEventID(f *testing.F) {
	h := handler(f)
	for _, seed := range []string{"", "0", "1", "1.1", "-1", "x", "18446744073709551616", "1.0"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, id string) {
		r := httptest.NewRequest(http.MethodHead, "http://localhost/cm?watch=true", nil)
		r.Header["Last-Event-Id"] = []string{id}
		if len(id) > 0 && (len(id) > 1 || id > "4") && strings.Trim(id, "0123456789") == "" {
			return // the server would wait for the mirror to come to it
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r.WithContext(t.Context()))
		if w.Code != http.StatusOK && w.Code != http.StatusBadRequest {
			t.Fatalf("%q: %d %s", id, w.Code, w.Body)
		}
	})
}
