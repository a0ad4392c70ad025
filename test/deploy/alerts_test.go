package deploy_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
)

// promtool runs promtool. It is built without service discovery, most of what it would
// be compiled of.
func promtool(t *testing.T, args ...string) string {
	t.Helper()
	return run(t, exec.CommandContext(t.Context(), "go", append([]string{"run", "-tags=remove_all_sd", "github.com/prometheus/prometheus/cmd/promtool"}, args...)...))
}

// The alerts fire when they should and not earlier, for what they should, with the text
// that they should have.
func TestAlerts(t *testing.T) {
	var manifest monitoringv1.PrometheusRule
	read(t, monitoring+"/prometheusrule.yaml", &manifest)
	fires, keepsQuiet := map[string]bool{}, map[string]bool{}
	var tests struct {
		RuleFiles []string `json:"rule_files"`
		Interval  string   `json:"evaluation_interval"`
		Tests     []struct {
			Name   string           `json:"name"`
			Series []map[string]any `json:"input_series"`
			Alerts []struct {
				Name     string           `json:"alertname"`
				At       string           `json:"eval_time"`
				Expected []map[string]any `json:"exp_alerts"`
			} `json:"alert_rule_test"`
		}
	}
	read(t, "testdata/alerts.yaml", &tests)
	for _, test := range tests.Tests {
		for _, a := range test.Alerts {
			fires[a.Name], keepsQuiet[a.Name] = fires[a.Name] || len(a.Expected) > 0, keepsQuiet[a.Name] || len(a.Expected) == 0
		}
	}
	for _, group := range manifest.Spec.Groups {
		for _, rule := range group.Rules {
			if !fires[rule.Alert] || !keepsQuiet[rule.Alert] {
				t.Errorf("testdata/alerts.yaml needs a test in which %s fires, and one in which it does not", rule.Alert)
			}
			if rule.Annotations["summary"] == "" || rule.Annotations["description"] == "" || rule.Labels["severity"] == "" {
				t.Errorf("%s needs a severity, a summary and a description", rule.Alert)
			}
			delete(rule.Annotations, "description")
		}
	}
	dir := t.TempDir()
	promtool(t, "check", "rules", "--lint=all", "--lint-fatal", write(t, dir, "rules.yaml", manifest.Spec))
	content, err := os.ReadFile("testdata/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "alerts.yaml")
	if err := os.WriteFile(path, content, 0o644); err != nil {
		t.Fatal(err)
	}
	t.Log(promtool(t, "test", "rules", path))
}
