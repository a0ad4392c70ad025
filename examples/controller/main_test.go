package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/tidings-io/tidings/examples/internal/target"
)

// TestDemo runs the program with the demo until it has written a budget, looks at its
// metrics, and ends it.
func TestDemo(t *testing.T) {
	for name, lease := range map[string]string{"alone": "", "elected": "default"} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			in, out := io.Pipe()
			ended := make(chan error, 1)
			go func() {
				o := options{target: target.Flags{Demo: true}, workers: 2, metricsAddress: "127.0.0.1:0", namespace: lease, detectMutations: true}
				ended <- run(ctx, o, slog.New(slog.NewJSONHandler(out, nil)))
				out.Close()
			}()
			var url string
			var lines []string
			for scanner := bufio.NewScanner(in); scanner.Scan(); {
				var line struct{ Msg, URL, Deployment, MinAvailable string }
				if err := json.Unmarshal(scanner.Bytes(), &line); err != nil {
					t.Fatal(err)
				}
				lines = append(lines, scanner.Text())
				switch line.Msg {
				case "metrics are served":
					url = line.URL
				case "wrote the budget":
					if line.Deployment != "default/web" || line.MinAvailable != "1" {
						t.Errorf("%+v", line)
					}
					checkMetrics(t, url)
					cancel()
				}
			}
			if err := <-ended; err != nil {
				t.Error(err)
			}
			log := strings.Join(lines, "\n")
			if !strings.Contains(log, "finishing") || strings.Contains(log, "WARN") || strings.Contains(log, "ERROR") {
				t.Errorf("the log is\n%s", log)
			}
			if strings.Contains(log, "this process is the leader") != (lease != "") {
				t.Errorf("the log is\n%s", log)
			}
		})
	}
}

func checkMetrics(t *testing.T, url string) {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Error(err)
		return
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Error(err)
	}
	for _, want := range []string{
		`tidings_informer_synced{cluster="demo",group="apps",resource="deployments",resource_namespace="",version="v1"} 1`,
		`tidings_informer_handler_backlog_age_seconds{cluster="demo",group="policy",handler="budgets",`,
	} {
		if !strings.Contains(string(body), want) {
			t.Errorf("the metrics lack %s:\n%s", want, body)
		}
	}
}
