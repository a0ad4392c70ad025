package soak

import (
	"context"
	"log/slog"
	"testing"
	"time"
)

// TestFleet is a short run of the fleet: the leader of the log and its publisher are killed, and
// acknowledged messages vanish.
func TestFleet(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a cluster, NATS servers and mirrors")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	report, err := RunFleet(ctx, Options{
		For: 30 * time.Second, Seed: 1, Faults: true, Patience: time.Minute, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		Only: []string{"the leader of the log killed", "the publisher killed", "acknowledged messages removed"},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range report.Mismatches() {
		t.Errorf("%s %s (%s)\n%s", m.Who, m.What, m.Fault, lines(m.Events))
	}
	if report.Checks() < 500 {
		t.Errorf("only %d checks", report.Checks())
	}
}
