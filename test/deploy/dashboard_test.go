package deploy_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/util/teststorage"
)

// demo starts tidings serve --demo, with a published cluster, and returns a function that reads from it.
func demo(t *testing.T) (get func(path string) string) {
	t.Helper()
	program := filepath.Join(t.TempDir(), "tidings")
	build := exec.CommandContext(t.Context(), "go", "build", "-C", root, "-o", program, "./cmd/tidings")
	build.Env = append(os.Environ(), "GOWORK=") // the workspace of that folder
	run(t, build)
	cmd := exec.Command(program, "serve", "--demo", "--stream", "embedded", "--listen", "127.0.0.1:0", "--memory-limit", "512Mi")
	stderr, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	url, said := make(chan string, 1), make(chan string, 1)
	go func() {
		var all strings.Builder
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			fmt.Fprintln(&all, lines.Text())
			if _, at, ok := strings.Cut(lines.Text(), "msg=serving url="); ok {
				at, _, _ = strings.Cut(at, " ")
				url <- at
			}
		}
		close(url)
		said <- all.String()
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		text := <-said
		if err := cmd.Wait(); err != nil {
			t.Errorf("it ends with %v, having said %s", err, text)
		}
	})
	base, ok := <-url
	if !ok {
		t.Fatal("it does not serve")
	}
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	client := &http.Client{Transport: transport, Timeout: time.Minute}
	try := func(path string) (int, string) {
		t.Helper()
		resp, err := client.Get(base + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(body)
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		code, body := try("/readyz")
		if code == http.StatusOK {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("it does not become ready: %s", body)
		}
	}
	return func(path string) string {
		t.Helper()
		code, body := try(path)
		if code != http.StatusOK {
			t.Fatalf("%s: %d %s", path, code, body)
		}
		return body
	}
}

// scraped is what Prometheus would have after some scrapes of /metrics.
type scraped struct {
	*teststorage.TestStorage
	last   time.Time
	labels map[string]map[string]bool // of each metric
}

// scrape adds the text of /metrics, scraped at a time.
func (s *scraped) scrape(t *testing.T, text string, at time.Time) {
	t.Helper()
	s.last = at
	into := s.Appender(t.Context())
	for p := textparse.NewPromParser([]byte(text), labels.NewSymbolTable(), false); ; {
		entry, err := p.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if entry != textparse.EntrySeries {
			continue
		}
		_, _, value := p.Series()
		var series labels.Labels
		p.Labels(&series)
		series = labels.NewBuilder(series).Set("instance", "demo:1").Set("job", "tidings").Labels()
		if _, err := into.Append(0, series, at.UnixMilli(), value); err != nil {
			t.Fatal(err)
		}
	}
	for _, line := range strings.Split(text, "\n") { // with the labels that are empty here, such as the revision
		name := regexp.MustCompile(`^[a-z_]+`).FindString(line)
		if s.labels[name] == nil {
			s.labels[name] = map[string]bool{"instance": true, "job": true}
		}
		for _, l := range regexp.MustCompile(`[{,]([a-z_]+)="`).FindAllStringSubmatch(line, -1) {
			s.labels[name][l[1]] = true
		}
	}
	if err := into.Commit(); err != nil {
		t.Fatal(err)
	}
}

// unknown returns the metrics and labels in a query that were not scraped.
func (s *scraped) unknown(expr parser.Expr) (all []string) {
	known := map[string]bool{}
	parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
		v, ok := n.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		if s.labels[v.Name] == nil {
			all = append(all, v.Name)
		}
		for l := range s.labels[v.Name] {
			known[l] = true
		}
		for _, m := range v.LabelMatchers {
			if m.Name != "__name__" && !s.labels[v.Name][m.Name] {
				all = append(all, v.Name+"{"+m.Name+"}")
			}
		}
		return nil
	})
	parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
		if a, ok := n.(*parser.AggregateExpr); ok {
			for _, l := range a.Grouping {
				if !known[l] {
					all = append(all, "by "+l)
				}
			}
		}
		return nil
	})
	return all
}

// Every query of the dashboard finds something in the metrics of a server.
func TestDashboard(t *testing.T) {
	get := demo(t)
	s := &scraped{TestStorage: teststorage.New(t), labels: map[string]map[string]bool{}}
	defer s.Close()
	now := time.Now()
	for i := range 4 {
		get("/pods?limit=2")
		get("/core/v1/nodes")
		get("/apis/apps/v1/deployments")
		s.scrape(t, get("/metrics"), now.Add(time.Duration(i-4)*30*time.Second))
	}
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 1e6, Timeout: time.Minute})
	defer engine.Close()
	query := func(text string) (promql.Vector, error) {
		q, err := engine.NewInstantQuery(context.Background(), s, nil, text, s.last)
		if err != nil {
			return nil, err
		}
		defer q.Close()
		found, err := q.Exec(context.Background()).Vector()
		return append(promql.Vector(nil), found...), err
	}
	var board struct {
		Templating struct {
			List []struct{ Name, Type, Definition string }
		}
		Panels []struct {
			Title   string
			Targets []struct{ Expr, LegendFormat string }
		}
	}
	content, err := os.ReadFile(monitoring + "/dashboard.json")
	if err == nil {
		err = json.Unmarshal(content, &board)
	}
	if err != nil {
		t.Fatal(err)
	}
	variables := []string{"$__rate_interval", "2m"}
	for _, v := range board.Templating.List {
		if variables = append(variables, "$"+v.Name, ".*"); v.Type != "query" {
			continue
		}
		of := regexp.MustCompile(`^label_values\((\w+), (\w+)\)$`).FindStringSubmatch(v.Definition)
		if of == nil || !s.labels[of[1]][of[2]] {
			t.Errorf("the variable %s has no values: %s", v.Name, v.Definition)
		}
	}
	queries := 0
	for _, panel := range board.Panels {
		for _, target := range panel.Targets {
			queries++
			text := strings.NewReplacer(variables...).Replace(target.Expr)
			expr, err := parser.NewParser(parser.Options{}).ParseExpr(text)
			if err != nil {
				t.Errorf("%s: %s: %v", panel.Title, text, err)
				continue
			}
			if unknown := s.unknown(expr); len(unknown) > 0 {
				t.Errorf("%s: %s: there is no %s", panel.Title, text, unknown)
			}
			found, err := query(text)
			numbers := 0
			for _, sample := range found {
				if !math.IsNaN(sample.F) {
					numbers++
				}
			}
			if err != nil || numbers == 0 {
				t.Errorf("%s: %s finds %v: %v", panel.Title, text, found, err)
			}
			for _, l := range regexp.MustCompile(`{{(\w+)}}`).FindAllStringSubmatch(target.LegendFormat, -1) {
				if !strings.Contains(text, "by ("+l[1]) && !strings.Contains(text, ", "+l[1]) && l[1] != "instance" {
					t.Errorf("%s: the legend names %s, which %s does not have", panel.Title, l[1], text)
				}
			}
		}
	}
	if queries < 20 {
		t.Errorf("the dashboard has %d queries", queries)
	}
	// The check finds what is not there.
	for _, text := range []string{`tidings_nothing`, `tidings_informer_objects{nothing="x"}`, `sum by (nothing) (tidings_informer_objects)`} {
		expr, err := parser.NewParser(parser.Options{}).ParseExpr(text)
		if err != nil || len(s.unknown(expr)) == 0 {
			t.Errorf("%s: %v", text, err)
		}
	}
}
