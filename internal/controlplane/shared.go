//go:build unix

package controlplane

import (
	"fmt"
	"os"
	"sync"
	"testing"
)

// shared is the cluster that the tests of a package share.
var shared struct {
	mu      sync.Mutex
	options []Option
	started bool // or tried to
	cluster *Cluster
	err     error
}

// Shared returns the cluster that all tests of a package share. The first call
// starts it, as [Start] does, and [Main] stops it. In a package whose TestMain
// does not call Main, it ends with the process. Tests that share a cluster see
// each other's objects: give each test its own namespace or names, and stop the
// API server only in a cluster of the test's own.
func Shared(tb testing.TB) *Cluster {
	tb.Helper()
	skipIfShort(tb)
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if !shared.started {
		ctx, cancel := testContext(tb)
		defer cancel()
		shared.started = true
		shared.cluster, shared.err = Launch(ctx, shared.options...)
	}
	if shared.err != nil {
		tb.Fatal(shared.err) // the same for every test: another start would fail again, slowly
	}
	return shared.cluster
}

// Main is for the TestMain of a package whose tests use [Shared]. It runs the
// tests, stops the cluster if one of them has started it, and exits. The
// options are those of the shared cluster.
func Main(m *testing.M, opts ...Option) { os.Exit(Tests(m, opts...).Run()) }

// Tests returns m, extended to stop the shared cluster after the tests, for a
// TestMain that cannot use [Main]:
//
//	func TestMain(m *testing.M) { goleak.VerifyTestMain(controlplane.Tests(m)) }
func Tests(m *testing.M, opts ...Option) interface{ Run() int } {
	return tests{m, opts}
}

type tests struct {
	m       *testing.M
	options []Option
}

func (t tests) Run() int {
	shared.options = t.options
	code := t.m.Run()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.cluster == nil {
		return code
	}
	if err := shared.cluster.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, "controlplane:", err)
		return max(code, 1)
	}
	return code
}
