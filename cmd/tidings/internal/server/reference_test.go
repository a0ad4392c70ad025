package server_test

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/tidings-io/tidings/cmd/tidings/internal/access"
	"github.com/tidings-io/tidings/cmd/tidings/internal/audit"
	"github.com/tidings-io/tidings/cmd/tidings/internal/fleet"
	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
	"github.com/tidings-io/tidings/cmd/tidings/internal/server"
	"github.com/tidings-io/tidings/informer"
	informermetrics "github.com/tidings-io/tidings/informer/metrics"
	"github.com/tidings-io/tidings/internal/fakeapi"
)

var update = flag.Bool("update", false, "write docs/metrics.md")

const (
	reference = "../../../../docs/metrics.md"
	alerts    = "../../../../deploy/chart/monitoring/prometheusrule.yaml"
	generated = "<!-- Generated from here on. -->\n"
)

// alert is an alert of deploy/.
type alert struct {
	Alert, Expr, For    string
	Labels, Annotations map[string]string
}

func (a alert) uses(metric string) bool {
	return regexp.MustCompile(`\b` + metric + `(_bucket|_count|_sum)?\b`).MatchString(a.Expr)
}

// docs/metrics.md has every metric of the code, with its alerts. No other page names a
// metric that does not exist.
func TestReferenceOfMetrics(t *testing.T) {
	var rules struct {
		Spec struct {
			Groups []struct{ Rules []alert }
		}
	}
	content, err := os.ReadFile(alerts)
	if err == nil {
		err = yaml.Unmarshal(content, &rules)
	}
	if err != nil {
		t.Fatal(err)
	}
	all := rules.Spec.Groups[0].Rules
	metrics := append(familiesOf(t, informersOfAKind()), familiesOf(t, serverOfEveryKind(t))...)
	metrics = slices.DeleteFunc(metrics, func(f family) bool { return !strings.HasPrefix(f.name, "tidings_") }) // of Go and of the process
	slices.SortFunc(metrics, func(a, b family) int { return cmp.Compare(a.name, b.name) })
	metrics = slices.CompactFunc(metrics, func(a, b family) bool { return a.name == b.name })

	var b strings.Builder
	for _, part := range []struct{ title, prefix, otherwise string }{
		{"The server", "tidings_", "tidings_informer_"},
		{"Informers\n\nOf the server, and of programs that register `informer/metrics`. Handlers are those of such programs.", "tidings_informer_", "-"},
	} {
		fmt.Fprintf(&b, "\n## %s\n\n| metric | type | labels | meaning | alerts |\n|---|---|---|---|---|\n", part.title)
		for _, f := range metrics {
			if !strings.HasPrefix(f.name, part.prefix) || strings.HasPrefix(f.name, part.otherwise) {
				continue
			}
			var use []string
			for _, a := range all {
				if a.uses(f.name) {
					use = append(use, fmt.Sprintf("[%s](#%s)", strings.TrimPrefix(a.Alert, "Tidings"), strings.ToLower(a.Alert)))
				}
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", f.name, f.kind, strings.Join(slices.Sorted(maps.Keys(f.labels)), ", "), f.help, strings.Join(use, ", "))
		}
	}
	b.WriteString("\n## Alerts\n")
	for _, a := range all {
		if !slices.ContainsFunc(metrics, func(f family) bool { return a.uses(f.name) }) {
			t.Errorf("%s uses no metric that there is: %s", a.Alert, a.Expr)
		}
		after := ""
		if a.For != "" {
			after = ", after " + a.For
		}
		summary := regexp.MustCompile(`{{ \$(?:labels\.)?(\w+)[^}]*}}`).ReplaceAllString(a.Annotations["summary"], "‹$1›")
		fmt.Fprintf(&b, "\n### %s\n\n%s%s. %s %s\n\n```promql\n%s\n```\n", a.Alert, strings.ToUpper(a.Labels["severity"][:1])+a.Labels["severity"][1:], after, summary, a.Annotations["description"], strings.TrimSpace(a.Expr))
	}

	page, err := os.ReadFile(reference)
	if err != nil {
		t.Fatal(err)
	}
	intro, _, ok := strings.Cut(string(page), generated)
	if !ok {
		t.Fatalf("%s lacks the line %s", reference, generated)
	}
	want := intro + generated + b.String()
	if *update {
		if err := os.WriteFile(reference, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if string(page) != want {
		t.Errorf("docs/metrics.md is not what the code and the alerts say; write it again: go test ./cmd/tidings/internal/server -run TestReferenceOfMetrics -update")
	}
	pages, err := filepath.Glob(filepath.Join(filepath.Dir(reference), "*.md"))
	if err != nil || len(pages) < 10 {
		t.Fatalf("found the pages %v: %v", pages, err)
	}
	for _, name := range pages {
		page, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, metric := range regexp.MustCompile(`\btidings_[a-z_]+[a-z]\b`).FindAllString(string(page), -1) {
			family := regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(metric, "") // of a histogram
			if !strings.Contains(b.String(), "`"+family+"`") {
				t.Errorf("docs/%s tells of %s, which does not exist", filepath.Base(name), metric)
			}
		}
	}
}

// family is a metric with all of its labels.
type family struct {
	name, help, kind string
	labels           map[string]bool
}

// familiesOf gathers all metrics, and complains about those that it gathers nothing of
// and those with an unconventional name.
func familiesOf(t *testing.T, r *prometheus.Registry) (families []family) {
	t.Helper()
	gathered, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range gathered {
		f := family{g.GetName(), g.GetHelp(), strings.ToLower(g.GetType().String()), map[string]bool{}}
		for _, m := range g.GetMetric() {
			for _, l := range m.GetLabel() {
				f.labels["`"+l.GetName()+"`"] = true
			}
		}
		families = append(families, f)
	}
	ofServer := slices.ContainsFunc(families, func(f family) bool { return f.name == "tidings_build_info" })
	descs := make(chan *prometheus.Desc)
	go func() {
		r.Describe(descs)
		close(descs)
	}()
	for d := range descs {
		name := regexp.MustCompile(`fqName: "([^"]+)"`).FindStringSubmatch(d.String())[1]
		if ofServer && strings.HasPrefix(name, "tidings_informer_") {
			continue // the informers of a server have no handlers
		}
		if strings.HasPrefix(name, "tidings_") && !slices.ContainsFunc(families, func(f family) bool { return f.name == name }) {
			t.Errorf("the test has no value of %s, so its type is not known", name)
		}
	}
	problems, err := testutil.GatherAndLint(r)
	if err != nil || len(problems) > 0 {
		t.Errorf("%v %v", problems, err)
	}
	for _, f := range families {
		if !regexp.MustCompile(`^(tidings|go|process|promhttp)_`).MatchString(f.name) {
			t.Errorf("%s may collide with the metric of another program", f.name)
		}
	}
	return families
}

// informersOfAKind has a value of every metric of an informer.
func informersOfAKind() *prometheus.Registry {
	now := time.Now()
	registry := prometheus.NewRegistry()
	registry.MustRegister(informermetrics.NewCollector(func() []informer.Status {
		return []informer.Status{{Resource: corev1.SchemeGroupVersion.WithResource("pods"), Phase: informer.Watching, LastContact: now, LastErrorTime: now, Handlers: []informer.HandlerStatus{{Name: "h"}}}}
	}))
	return registry
}

// serverOfEveryKind has a value of every other metric.
func serverOfEveryKind(t *testing.T) *prometheus.Registry {
	t.Helper()
	c := fakeapi.New(fakeapi.Options{
		Users: map[string]fakeapi.User{"mirror-token": {Name: "mirror"}, "alice-token": {Name: "alice"}},
		Allow: func(fakeapi.User, fakeapi.Access) bool { return true },
	})
	config, stop := fakeapi.InProcess(c)
	t.Cleanup(stop)
	config.BearerToken = "mirror-token"
	o := remember(t, options{})
	broker, err := fleet.StartEmbedded(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(broker.Close)
	nc, err := broker.Connect("test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	publisher, err := fleet.NewPublisher(nc, fleet.PublisherOptions{StreamOptions: fleet.StreamOptions{Memory: true}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = publisher.Wait(context.Background()) })
	follower, err := fleet.NewFollower(nc, fleet.FollowerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(follower.Close)
	o.mirror.Publisher = publisher
	m, err := mirror.New(o.mirror)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close(context.Background()) })
	if err := m.Set(t.Context(), map[string]*rest.Config{"test": config}); err != nil {
		t.Fatal(err)
	}
	gate, err := access.NewGate(access.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(gate.Close)
	tls, _, err := server.GenerateTLS([]string{"localhost"})
	if err != nil {
		t.Fatal(err)
	}
	log := audit.New(io.Discard, audit.Options{})
	t.Cleanup(func() { _ = log.Close(context.Background()) })
	s, err := server.New(m, server.Options{Gate: gate, TLS: tls, Audit: log, Reads: o.server.Reads, Publisher: publisher, Follower: follower})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	req := httptest.NewRequest(http.MethodGet, "/cm", nil)
	req.Header.Set("Authorization", "Bearer alice-token")
	answer := httptest.NewRecorder()
	if s.Handler().ServeHTTP(answer, req); answer.Code != http.StatusOK {
		t.Fatalf("%d %s", answer.Code, answer.Body)
	}
	for clusters := range follower.Clusters(t.Context()) { // until the publisher has begun
		if len(clusters) > 0 {
			break
		}
	}
	return server.Registry(s)
}
