package soak

import (
	"context"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestMutantsAreFound checks that a run finds a defect that shows by itself, and
// one that shows only with a fault.
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
				t.Fatalf("%d checks did not find that %s", report.Checks(), mutant.What)
			}
			t.Logf("found after %s: %s %s", found[0].After.Round(time.Second), found[0].Who, found[0].What)
		})
	}
}

// TestMutantsFitTheSource checks that every mutant applies to the present source
// and compiles.
func TestMutantsFitTheSource(t *testing.T) {
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range Mutants {
		overlay, err := m.overlay(root, t.TempDir())
		if err != nil {
			t.Error(err)
			continue
		}
		build := exec.CommandContext(t.Context(), "go", "build", "-overlay", overlay, "./"+path.Dir(m.file))
		build.Dir = root
		if out, err := build.CombinedOutput(); err != nil {
			t.Errorf("mutant %s does not compile: %v\n%s", m.Name, err, out)
		}
		if m.Fault != "" && !slices.ContainsFunc(append((&soak{}).mirrorFaults(), (&fleet{}).faults()...), func(f fault) bool { return f.name == m.Fault }) {
			t.Errorf("mutant %s needs the fault %q, which does not exist", m.Name, m.Fault)
		}
	}
	if _, err := FindMutant("none"); err == nil || !strings.Contains(err.Error(), MutantNames()) {
		t.Errorf("FindMutant of an unknown name: %v, want %s", err, MutantNames())
	}
}
