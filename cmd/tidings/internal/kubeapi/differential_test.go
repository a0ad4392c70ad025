package kubeapi_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidwall/gjson"
	"google.golang.org/protobuf/encoding/protowire"
	"sigs.k8s.io/yaml"

	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
	"github.com/tidings-io/tidings/cmd/tidings/internal/server"
	"github.com/tidings-io/tidings/internal/controlplane"
)

// TestDifferential sends the same thousands of requests to a mirror and its API server
// while the cluster changes. Status, media type and body must be the same to the byte. The
// expected content of a list is known exactly, because the API server can list the state
// at the version of the mirror's list.
func TestDifferential(t *testing.T) {
	cp := controlplane.Shared(t)
	r := start(t, cp.AdminConfig(), mirror.Options{Resources: []string{mirror.Everything, "secrets"}}, server.Options{})
	p := populate(t, r.theirs)
	ctx, cancel := context.WithCancel(t.Context())
	quiet := make(chan struct{})
	go func() {
		defer close(quiet)
		p.live(ctx, rand.New(rand.NewPCG(5, 6)))
	}()
	defer func() {
		cancel()
		<-quiet
	}()
	rnd, n := seeded(t, 4000)
	d := &differential{TB: t, ours: r.ours, theirs: r.theirs, rnd: rnd, codes: map[int]int{}}
	for range n {
		d.compare(generate(d.rnd, p, &d.seen))
		if d.failed > 20 {
			t.Fatal("and so on")
		}
	}
	t.Logf("%d requests, by status %v; %d repeated because of changes in between", n, d.codes, d.again)
	if d.codes[http.StatusOK] < n/4 {
		t.Error("too few of the requests were answered")
	}
}

// seeded returns the random source and the number of requests. The seed is random, unless
// TIDINGS_SEED and TIDINGS_ASKS are set.
func seeded(t *testing.T, n int) (*rand.Rand, int) {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("TIDINGS_SEED"); s != "" {
		seed, _ = strconv.ParseUint(s, 10, 64)
	}
	t.Logf("TIDINGS_SEED=%d", seed)
	if s := os.Getenv("TIDINGS_ASKS"); s != "" {
		n, _ = strconv.Atoi(s)
	}
	return rand.New(rand.NewPCG(seed, 1)), n
}

// differential compares the answers that a user gets from two servers.
type differential struct {
	testing.TB
	ours, theirs  *api
	rnd           *rand.Rand
	seen          memory
	codes         map[int]int
	failed, again int

	caller  caller
	known   []exception
	mu      sync.Mutex     // of watches, which are asked for at once
	allowed map[string]int // by exception
}

// allow reports whether the answers to a request are known to differ.
func (d *differential) allow(q ask) bool {
	for _, e := range d.known {
		if e.applies(d.caller, q) {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.allowed[e.text]++
			return true
		}
	}
	return false
}

func (d *differential) compare(q ask) {
	d.Helper()
	if d.allow(q) {
		return
	}
	newest := strings.Contains(unseal(q.query.Get("continue")), `"rv":-1,`)
	exact := q.query.Get("continue") != "" && !newest || q.query.Get("resourceVersionMatch") == "Exact"
	if v := q.query.Get("resourceVersion"); q.query.Get("resourceVersionMatch") == "" && v != "" && v != "0" && number(q.query.Get("limit")) > 0 {
		exact = !strings.Contains(q.query.Get("fieldSelector"), "metadata.name=") // as of old
	}
	var why string
	for range 20 {
		before := d.theirs.ask(q)
		ours := d.ours.ask(q)
		if ours.code == http.StatusOK && before.code == http.StatusOK && !exact {
			why = d.correct(q, before, ours)
		} else if why = differ(before, ours); why != "" && !exact {
			// The objects may have changed between the two requests.
			if after := d.theirs.ask(q); differ(before, after) == "" {
				break
			}
		}
		if why == "" {
			d.remember(q, ours)
			d.codes[ours.code]++
			return
		}
		if exact || ours.code == http.StatusOK && before.code == http.StatusOK && versionOf(ours) != "" && isList(q) {
			break
		}
		d.again++
	}
	d.failed++
	d.Errorf("%s: GET %s  Accept: %s %v: %s", d.caller.name, q.url(), q.accept, q.header, why)
}

// correct describes what is wrong with an answer of the mirror.
func (d *differential) correct(q ask, before, ours answer) string {
	if before.header.Get("Content-Type") != ours.header.Get("Content-Type") {
		return fmt.Sprintf("Content-Type %q, not %q", ours.header.Get("Content-Type"), before.header.Get("Content-Type"))
	}
	if !isList(q) {
		after := d.theirs.ask(q)
		if bytes.Equal(before.body, ours.body) || bytes.Equal(after.body, ours.body) {
			return ""
		}
		return differ(before, ours)
	}
	version := versionOf(ours)
	if version == "" {
		return fmt.Sprintf("a list without a version: %s", ours)
	}
	if q.query.Get("resourceVersion") == "" && number(version) < number(versionOf(before)) {
		return fmt.Sprintf("a list of version %s, older than %s, which the API server had at the time of the request", version, versionOf(before))
	}
	then := ask{path: q.path, accept: q.accept, header: q.header, query: url.Values{}}
	for name, values := range q.query {
		then.query[name] = values
	}
	if q.query.Get("resourceVersion") == "0" {
		then.query.Del("limit")
	}
	if token := q.query.Get("continue"); token != "" {
		then.query.Set("continue", base64.RawURLEncoding.EncodeToString([]byte(strings.Replace(unseal(token), `"rv":-1,`, `"rv":`+version+`,`, 1))))
	} else {
		then.query.Set("resourceVersion", version)
		then.query.Set("resourceVersionMatch", "Exact")
	}
	return differ(d.theirs.ask(then), ours)
}

// remember records values for later requests.
func (d *differential) remember(q ask, a answer) {
	if a.code != http.StatusOK || !isList(q) || !strings.HasPrefix(a.header.Get("Content-Type"), "application/json") {
		return
	}
	if v := versionOf(a); v != "" {
		d.seen.versions = append(d.seen.versions, v)
	}
	token := gjson.GetBytes(a.body, "metadata.continue").Str
	if token == "" {
		return
	}
	next := ask{path: q.path, query: url.Values{"continue": {token}}, header: http.Header{}}
	for _, name := range []string{"limit", "labelSelector", "fieldSelector"} {
		if v, ok := q.query[name]; ok {
			next.query[name] = v
		}
	}
	d.seen.pages = append(d.seen.pages, next)
}

// unseal decodes a continue token.
func unseal(token string) string {
	raw, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil {
		return ""
	}
	return string(raw)
}

var (
	current      = regexp.MustCompile(`current: \d+`)
	descriptions = regexp.MustCompile(`"description":"(?:[^"\\]|\\.)*"`)
	ages         = regexp.MustCompile(`\b\d+[smhdy](\d+[smhd])?\b`)
)

// comparable returns the body of an answer without known differences.
func comparable(a answer) []byte {
	body := current.ReplaceAll(a.body, nil) // how far the mirror has come is its own affair
	if !bytes.Contains(body[:min(len(body), 200)], []byte("Table")) && !bytes.Contains(body, []byte("kind: Table")) {
		return body
	}
	if strings.HasPrefix(a.header.Get("Content-Type"), "application/yaml") {
		if plain, err := yaml.YAMLToJSON(body); err == nil {
			body = plain
		}
	}
	// The descriptions of columns are from another version of Kubernetes, and ages may
	// differ by a second.
	return ages.ReplaceAll(descriptions.ReplaceAll(body, nil), []byte("*"))
}

// differ describes how two answers differ.
func differ(theirs, ours answer) string {
	switch {
	case theirs.code != ours.code:
		return fmt.Sprintf("%s\nnot %s", ours, theirs)
	case theirs.header.Get("Content-Type") != ours.header.Get("Content-Type"):
		return fmt.Sprintf("Content-Type %q, not %q", ours.header.Get("Content-Type"), theirs.header.Get("Content-Type"))
	}
	a, b := comparable(theirs), comparable(ours)
	if bytes.Equal(a, b) {
		return ""
	}
	at := 0
	for at < len(a) && at < len(b) && a[at] == b[at] {
		at++
	}
	part := func(x []byte) string { return fmt.Sprintf("%.400q", x[min(len(x), max(0, at-150)):]) }
	return fmt.Sprintf("%d: differ at %d:\n%s\nnot %s", ours.code, at, part(b), part(a))
}

// isList reports whether the answer to a request is a list.
func isList(q ask) bool {
	segments := strings.Split(strings.Trim(q.path, "/"), "/")
	if segments[0] == "apis" {
		segments = segments[1:]
	}
	if len(segments) < 3 || segments[0] == "openapi" {
		return false
	}
	if segments = segments[2:]; len(segments) > 2 && segments[0] == "namespaces" {
		segments = segments[2:]
	}
	return len(segments) == 1 && segments[0] != "status" && segments[0] != "finalize" // which namespaces have
}

// versionOf returns the version of a list.
func versionOf(a answer) string {
	body := a.body
	switch {
	case strings.HasPrefix(a.header.Get("Content-Type"), protobuf):
		return protobufVersion(body)
	case strings.HasPrefix(a.header.Get("Content-Type"), "application/yaml"):
		var err error
		if body, err = yaml.YAMLToJSON(body); err != nil {
			return ""
		}
	}
	return gjson.GetBytes(body, "metadata.resourceVersion").String()
}

// protobufVersion finds the version: in the metadata of the list in the envelope.
func protobufVersion(body []byte) string {
	for _, field := range []protowire.Number{2, 1, 2} {
		if field == 2 && bytes.HasPrefix(body, []byte("k8s\x00")) {
			body = body[4:]
		}
		var found []byte
		for len(body) > 0 && found == nil {
			number, kind, n := protowire.ConsumeTag(body)
			if n < 0 || kind != protowire.BytesType {
				return ""
			}
			value, m := protowire.ConsumeBytes(body[n:])
			if m < 0 {
				return ""
			}
			if body = body[n+m:]; number == field {
				found = value
			}
		}
		body = found
	}
	return string(body)
}

func number(version string) uint64 {
	n, _ := strconv.ParseUint(version, 10, 64)
	return n
}
