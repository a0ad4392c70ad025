package kubeapi_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/tidings-io/tidings/cmd/tidings/internal/kubeapi"
	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
	"github.com/tidings-io/tidings/cmd/tidings/internal/read"
	"github.com/tidings-io/tidings/cmd/tidings/internal/server"
	"github.com/tidings-io/tidings/internal/fakeapi"
)

// many makes more objects than are sent in one piece.
func many(t testing.TB, c *fakeapi.Cluster, text string) {
	t.Helper()
	for i := range 60 {
		put(t, c, fmt.Sprint("c", i), fmt.Sprint(i, text))
	}
}

// whole returns the expected answer, given its JSON.
func whole(t testing.TB, form string, content []byte) string {
	t.Helper()
	var b bytes.Buffer
	var err error
	if form == "yaml" {
		var out []byte
		out, err = yaml.JSONToYAML(content)
		b.Write(out)
	} else {
		err = json.Indent(&b, bytes.TrimSuffix(content, []byte("\n")), "", "  ")
	}
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// Lists in YAML and indented JSON are the converted JSON, to the byte, of any length, and
// for Tables and empty lists too.
func TestFormsOfLists(t *testing.T) {
	r, c := inMemory(t, mirror.Options{}, server.Options{})
	many(t, c, strings.Repeat(" some text: \"that\" is - long,\n  and has lines\n\n#in it", 30)+" 日本語 ")
	if _, err := c.Create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: "empty"}}); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/api/v1/configmaps", "/api/v1/namespaces/other/configmaps", "/api/v1/namespaces/none/configmaps", "/api/v1/configmaps?limit=2", "/api/v1/nodes"} {
		for _, as := range []string{"", ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", ";as=Table;g=meta.k8s.io;v=v1"} {
			for _, include := range []string{"", "None", "Object"} {
				if include != "" && !strings.Contains(as, "Table") {
					continue
				}
				u, _ := url.Parse(path)
				query := u.Query()
				if include != "" {
					query.Set("includeObject", include)
				}
				for _, form := range []string{"yaml", "json"} {
					difference := ""
					for range 5 { // ages change from one second to the next
						plain := r.ours.ask(ask{path: u.Path, query: query, accept: "application/json" + as})
						pretty := url.Values{}
						for k, v := range query {
							pretty[k] = v
						}
						if form == "json" {
							pretty.Set("pretty", "true")
						}
						got := r.ours.ask(ask{path: u.Path, query: pretty, accept: "application/" + form + as})
						want := whole(t, form, plain.body)
						if difference = ""; got.code == http.StatusOK && string(got.body) == want {
							break
						}
						difference = fmt.Sprintf("%d, %d bytes: %.400q\nwant %d bytes: %.400q", got.code, len(got.body), got.body, len(want), want)
					}
					if difference != "" {
						t.Errorf("%s %s %s as %s: %s", path, as, include, form, difference)
					}
				}
			}
		}
	}
}

// An object that cannot be converted to YAML is an error before the answer has begun, even
// if it is the last of a long list.
func TestNoYAML(t *testing.T) {
	r, c := inMemory(t, mirror.Options{}, server.Options{})
	many(t, c, strings.Repeat("text ", 2000))
	put(t, c, "z", "\x7f")
	for _, as := range []string{"", ";as=Table;g=meta.k8s.io;v=v1"} {
		a := r.ours.ask(ask{path: "/api/v1/configmaps", query: url.Values{"includeObject": {"Object"}}, accept: "application/yaml" + as})
		if a.code != http.StatusInternalServerError || !strings.Contains(string(a.body), "control characters are not allowed") {
			t.Errorf("%d, %d bytes: %.300q", a.code, len(a.body), a.body)
		}
	}
}

// handler is a Handler for an in-memory cluster, without a server.
func handler(t *testing.T, opts kubeapi.Options) (http.Handler, *fakeapi.Cluster) {
	t.Helper()
	r, c := inMemory(t, mirror.Options{}, server.Options{})
	cluster, err := r.mirror.Cluster("")
	if err != nil {
		t.Fatal(err)
	}
	opts.Logger = slog.New(slog.DiscardHandler)
	h := kubeapi.New(read.New(read.Options{}), opts)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q, err := kubeapi.Parse(r, cluster)
		if err != nil {
			t.Fatal(err)
		}
		h.Serve(w, r, q)
	}), c
}

// leaver is a client that leaves once the answer has begun.
type leaver struct {
	*httptest.ResponseRecorder
	gone context.CancelFunc
}

func (l leaver) Write(p []byte) (int, error) {
	l.gone()
	return l.ResponseRecorder.Write(p)
}

var listForms = map[string]string{
	"JSON": "application/json", "YAML": "application/yaml", "protobuf": "application/vnd.kubernetes.protobuf", "Table": asTable,
	"metadata": "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
}

func request(ctx context.Context, accept, query string) *http.Request {
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/api/v1/configmaps?includeObject=Object&"+query, nil)
	r.Header.Set("Accept", accept)
	return r
}

// Nothing is encoded for a client that has left, and an answer that has begun is aborted.
func TestListsEndWithTheRequest(t *testing.T) {
	h, c := handler(t, kubeapi.Options{})
	many(t, c, strings.Repeat("text ", 5000))
	whole := httptest.NewRecorder()
	h.ServeHTTP(whole, request(t.Context(), "application/json", ""))
	if whole.Body.Len() < 1<<20 {
		t.Fatalf("%d %.300s", whole.Code, whole.Body)
	}
	for form, accept := range listForms {
		for _, pretty := range []string{"", "pretty=true"} {
			if form == "metadata" {
				continue // is one piece
			}
			ctx, cancel := context.WithCancel(t.Context())
			w := leaver{httptest.NewRecorder(), cancel}
			aborted := func() (p any) {
				defer func() { p = recover() }()
				h.ServeHTTP(w, request(ctx, accept, pretty))
				return nil
			}()
			cancel()
			if aborted != http.ErrAbortHandler || w.Body.Len() > 1<<19 {
				t.Errorf("%s %s: %v after %d bytes of %d", form, pretty, aborted, w.Body.Len(), whole.Body.Len())
			}
		}
	}
	// A request that has timed out is answered if the answer has not begun.
	for form, accept := range listForms {
		ctx, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
		w := httptest.NewRecorder()
		h.ServeHTTP(w, request(ctx, accept, ""))
		cancel()
		if w.Code != http.StatusGatewayTimeout || w.Header().Get("Retry-After") == "" {
			t.Errorf("%s: %d %.300q", form, w.Code, w.Body)
		}
	}
}

// overdue is a context whose deadline is exceeded once it is cancelled.
type overdue struct {
	context.Context
	deadline time.Time
}

func (o overdue) Deadline() (time.Time, bool) { return o.deadline, true }

func (o overdue) Err() error {
	if o.Context.Err() != nil {
		return context.DeadlineExceeded
	}
	return nil
}

// An admitted answer is sent completely, even after the deadline of the request, but not
// without limit.
func TestWhatWasLetInIsSentWhole(t *testing.T) {
	var over context.CancelFunc
	h, c := handler(t, kubeapi.Options{Admit: func(context.Context, kubeapi.Cost) (func(), error) {
		over()
		return func() {}, nil
	}})
	many(t, c, strings.Repeat("text ", 500))
	for form, accept := range listForms {
		for code, deadline := range map[int]time.Time{http.StatusOK: time.Now().Add(time.Hour), http.StatusGatewayTimeout: time.Now().Add(-time.Hour)} {
			ctx, cancel := context.WithCancel(t.Context())
			over = cancel
			w := httptest.NewRecorder()
			h.ServeHTTP(w, request(overdue{ctx, deadline}, accept, ""))
			if w.Code != code {
				t.Errorf("%s: %d, not %d: %.300q", form, w.Code, code, w.Body)
			}
		}
	}
}

// An expensive answer needs admission, in every form, and leaves when it has been sent. A
// refusal is the answer.
func TestAdmission(t *testing.T) {
	var inside, asked atomic.Int64
	var full atomic.Bool
	h, c := handler(t, kubeapi.Options{Admit: func(_ context.Context, cost kubeapi.Cost) (func(), error) {
		asked.Add(1)
		if full.Load() {
			return nil, apierrors.NewTooManyRequests("there is no room", 7)
		}
		if cost.Bytes <= 0 || cost.Bytes > 100<<20 || cost.Work <= 0 || cost.Work > 10*time.Second {
			t.Errorf("it would cost %+v", cost)
		}
		inside.Add(1)
		return func() { inside.Add(-1) }, nil
	}})
	put(t, c, "little", "1")
	h.ServeHTTP(httptest.NewRecorder(), request(t.Context(), "application/json", ""))
	if asked.Load() != 0 {
		t.Error("a small list needed admission")
	}
	many(t, c, strings.Repeat("text ", 500))
	for _, refused := range []bool{true, false} {
		full.Store(refused)
		for form, accept := range listForms {
			for _, encoding := range []string{"identity", "gzip"} {
				asked.Store(0)
				r := request(t.Context(), accept, "")
				r.Header.Set("Accept-Encoding", encoding)
				w := httptest.NewRecorder()
				h.ServeHTTP(w, r)
				want := http.StatusOK
				if refused {
					want = http.StatusTooManyRequests
				}
				if w.Code != want || asked.Load() != 1 || inside.Load() != 0 || refused && w.Header().Get("Retry-After") != "7" {
					t.Errorf("%s, %s, refused: %v: %d %v, asked %d times, %d inside: %.200q", form, encoding, refused, w.Code, w.Header(), asked.Load(), inside.Load(), w.Body)
				}
			}
		}
	}
}

// A refusal is for its caller alone: another caller of the same list makes it. Once it is
// being made, no other caller needs admission.
func TestAdmissionIsOfEachCaller(t *testing.T) {
	asked := make(chan string)
	refuse := make(chan struct{})
	h, c := handler(t, kubeapi.Options{Admit: func(ctx context.Context, _ kubeapi.Cost) (func(), error) {
		caller := read.CallerOf(ctx)
		asked <- caller
		if caller == "alice" {
			return func() {}, nil
		}
		select {
		case <-refuse:
			return nil, apierrors.NewTooManyRequests("you have your share", 5)
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}})
	many(t, c, strings.Repeat("text ", 500))
	ask := func(caller string) <-chan int {
		code := make(chan int, 1)
		go func() {
			r := request(read.WithCaller(t.Context(), caller), "application/json", "")
			r.Header.Set("Accept-Encoding", "gzip")
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			code <- w.Code
		}()
		return code
	}
	var mallory []<-chan int
	for range 3 {
		mallory = append(mallory, ask("mallory"))
		<-asked
	}
	refuse <- struct{}{}
	codes := map[int]int{}
	alice := ask("alice")
	<-asked
	codes[<-alice]++
	for _, code := range mallory {
		codes[<-code]++
	}
	if codes[http.StatusTooManyRequests] != 1 || codes[http.StatusOK] != 3 {
		t.Errorf("there were these answers: %v", codes)
	}
}

// A list that is too long for the cache is sent nevertheless.
func TestListsTooLongToShare(t *testing.T) {
	h, c := handler(t, kubeapi.Options{AnswerBytes: 64 << 10})
	for i := range 40 {
		noise := make([]byte, 20<<10)
		for j := range noise {
			noise[j] = byte('!' + (i*7919+j*j*104729+j*31)%90)
		}
		put(t, c, fmt.Sprint("c", i), "x")
		if _, err := c.Update(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("c", i)}, BinaryData: map[string][]byte{"v": noise}}); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		for _, accept := range []string{listForms["JSON"], listForms["protobuf"]} {
			plain, packed := httptest.NewRecorder(), httptest.NewRecorder()
			h.ServeHTTP(plain, request(t.Context(), accept, ""))
			r := request(t.Context(), accept, "")
			r.Header.Set("Accept-Encoding", "gzip")
			h.ServeHTTP(packed, r)
			got, err := inflated(packed.Body)
			if err != nil || packed.Header().Get("Content-Encoding") != "gzip" || !bytes.Equal(got, plain.Body.Bytes()) {
				t.Errorf("%v %v: %d bytes, not %d", err, packed.Header(), len(got), plain.Body.Len())
			}
		}
	}
}

func inflated(r io.Reader) ([]byte, error) {
	z, err := gzip.NewReader(r)
	if err != nil {
		return nil, err
	}
	return io.ReadAll(z)
}
