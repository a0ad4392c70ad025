package soak

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"
)

// A run finds a server that does not tell the truth. These two show what it takes:
// a defect that shows by itself, and one that shows when things go wrong.
func TestMutantsAreFound(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a cluster for each mutant")
	}
	for _, name := range []string{"drop", "sweep"} {
		t.Run(name, func(t *testing.T) {
			mutant, err := FindMutant(name)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
			defer cancel()
			report, err := Run(ctx, Options{For: 5 * time.Minute, Seed: 1, Faults: mutant.Fault != "", Mutant: mutant, UntilFound: true})
			if err != nil {
				t.Fatal(err)
			}
			found := report.Mismatches()
			if len(found) == 0 {
				t.Fatalf("%d checks have not found that %s", report.Checks(), mutant.What)
			}
			t.Logf("found after %s: %s %s", found[0].After.Round(time.Second), found[0].Who, found[0].What)
		})
	}
}

// Mutants are changes of the source as it is.
func TestMutantsFitTheSource(t *testing.T) {
	for _, m := range Mutants {
		if _, err := m.overlay("../..", t.TempDir()); err != nil {
			t.Error(err)
		}
		if m.Fault != "" && !slices.ContainsFunc((&soak{}).faults(), func(f fault) bool { return f.name == m.Fault }) {
			t.Errorf("mutant %s takes a fault that there is not: %s", m.Name, m.Fault)
		}
	}
	if _, err := FindMutant("none"); err == nil || !strings.Contains(err.Error(), MutantNames()) {
		t.Errorf("who names no mutant is told %v, want %s", err, MutantNames())
	}
}
