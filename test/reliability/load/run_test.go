package load

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A little load: everything is delivered, and written down.
func TestLittleLoad(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and starts a server")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	results, err := Run(ctx, Options{
		Objects: 50, Bytes: 100, Namespaces: 5, Lists: 20, Wide: 2, Settle: 500 * time.Millisecond, Step: 2 * time.Second,
		Steps: []Step{{Watches: 10, Changes: 20}, {Watches: 30, Changes: 50}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(results) != 2 {
		t.Fatalf("%d results of two steps", len(results))
	}
	for _, r := range results {
		if r.Open != r.Watches || r.Delivered == 0 || r.ListsDone == 0 || r.Refused != 0 || r.Broken != 0 {
			t.Errorf("%d watches and %d changes a second: %+v", r.Watches, r.Changes, r)
		}
		if r.Latency.P50 <= 0 || r.Latency.P50 > r.Latency.P99 || r.Latency.P99 > r.Latency.Max || r.RSS == 0 || r.CPU <= 0 {
			t.Errorf("%d watches and %d changes a second: %+v", r.Watches, r.Changes, r)
		}
	}
	// Two watch everything, and all others a fifth of it.
	if r := results[1]; r.Delivered < 0.5*r.Made*(2+28/5) || r.Missing > 0.5 {
		t.Errorf("%.0f changes a second, and %.0f events delivered", r.Made, r.Delivered)
	}
	var table, picture bytes.Buffer
	Markdown(&table, results)
	if n := strings.Count(table.String(), "\n| "); n != len(results) {
		t.Errorf("%d lines of the table of %d results:\n%s", n, len(results), &table)
	}
	if err := Picture(&picture, results); err != nil {
		t.Fatal(err)
	}
	if picture.Len() > 100<<10 {
		t.Errorf("a picture of %d bytes", picture.Len())
	}
	for d := xml.NewDecoder(&picture); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("the picture is no SVG: %v", err)
		}
	}
}

func TestKnee(t *testing.T) {
	fine := Result{Step: Step{10, 20}, Open: 10, Made: 20, Latency: Latency{P99: time.Millisecond}}
	late, refused := fine, fine
	late.Latency.P99 = 2 * time.Second
	refused.Refused = 7
	for _, test := range []struct {
		results []Result
		says    string
	}{
		{[]Result{fine, fine}, "No step"},
		{[]Result{fine, late}, "took longer than 1s"},
		{[]Result{late}, "the first step"},
		{[]Result{fine, refused, late}, "were refused: 7"},
	} {
		if said := Knee(test.results); !strings.Contains(said, test.says) {
			t.Errorf("%q does not say %q", said, test.says)
		}
	}
}
