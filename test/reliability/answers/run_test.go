package answers

import (
	"context"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Many lists at a time are answered whole or refused, in every form, and take little
// memory.
func TestAnswers(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and starts a server")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	const clients, rounds = 12, 2
	results, err := Run(ctx, Options{Pods: 200, Clients: clients, Rounds: rounds, Limit: "256Mi"})
	if err != nil {
		t.Fatal(err)
	}
	if len(results) != len(Forms()) {
		t.Fatalf("%d results of %d forms", len(results), len(Forms()))
	}
	for _, r := range results {
		if r.Whole == 0 || r.Whole+r.Refused != clients*rounds || r.Bytes == 0 {
			t.Errorf("%s: %+v", r.Form.Name, r)
		}
		if r.Peak == 0 || r.Peak > 300<<20 {
			t.Errorf("%s: %d MB", r.Form.Name, r.Peak>>20)
		}
	}
}
