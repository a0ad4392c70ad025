package cluster_test

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"pgregory.net/rapid"

	"github.com/tidings-io/tidings/cluster"
)

// state is one step of what Watch yields.
type state struct {
	set map[string]*rest.Config
	err error
}

func (s state) String() string {
	return fmt.Sprint(slices.Sorted(maps.Keys(s.set)), " ", s.err)
}

// follow runs Watch beside the test, which takes the steps from the channel.
func follow(t testing.TB, path string, contexts ...string) <-chan state {
	ctx, cancel := context.WithCancel(context.Background())
	steps, done := make(chan state), make(chan struct{})
	go func() {
		defer close(done)
		for set, err := range cluster.Watch(ctx, path, contexts) {
			select {
			case steps <- state{set, err}:
			case <-ctx.Done():
				return
			}
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
	return steps
}

func next(t testing.TB, steps <-chan state) state {
	t.Helper()
	select {
	case s := <-steps:
		return s
	case <-time.After(20 * time.Second):
		t.Fatal("Watch did not notice")
		return state{}
	}
}

// expect takes one step and checks which clusters it has, and in which error it
// goes ("" for none).
func expect(t testing.TB, steps <-chan state, clusters, says string) state {
	t.Helper()
	s := next(t, steps)
	got := strings.Join(slices.Sorted(maps.Keys(s.set)), " ")
	if got != clusters || (s.err == nil) != (says == "") || s.err != nil && !strings.Contains(s.err.Error(), says) {
		t.Fatalf("got %v, want [%s] %s", s, clusters, says)
	}
	return s
}

// replace writes a file as editors do: beside it, then renamed over it.
func replace(t testing.TB, path, text string) {
	t.Helper()
	if err := os.Rename(write(t, path+".new", text), path); err != nil {
		t.Fatal(err)
	}
}

func TestWatchFollowsTheFile(t *testing.T) {
	nowhere(t)
	file := write(t, filepath.Join(t.TempDir(), "config"), kubeconfig("a", "a", "b"))
	steps := follow(t, file, "*")
	before := expect(t, steps, "a b", "")
	replace(t, file, kubeconfig("a", "a", "b", "c"))
	after := expect(t, steps, "a b c", "")
	if before.set["a"] != after.set["a"] {
		t.Error("a is replaced though nothing about it changed")
	}
	replace(t, file, strings.Replace(kubeconfig("a", "a", "c"), "secret-a", "new", 1))
	last := expect(t, steps, "a c", "")
	if last.set["a"] == after.set["a"] || last.set["a"].BearerToken != "new" || last.set["c"] != after.set["c"] {
		t.Error("the change of a is not told from the rest")
	}
	write(t, file, kubeconfig("a", "c")) // in place
	expect(t, steps, "c", "")
}

func TestWatchKeepsValidClusters(t *testing.T) {
	nowhere(t)
	file := write(t, filepath.Join(t.TempDir(), "config"), kubeconfig("a", "a", "b"))
	steps := follow(t, file, "*")
	good := expect(t, steps, "a b", "")
	replace(t, file, "{{{")
	expect(t, steps, "a b", "read the kubeconfig")
	replace(t, file, "")
	expect(t, steps, "a b", "has no contexts")
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	expect(t, steps, "a b", "no kubeconfig found")
	// One context that is broken takes neither itself nor the other away.
	replace(t, file, strings.Replace(kubeconfig("a", "a", "b"), "token: secret-a", "tokenFile: nowhere", 1))
	expect(t, steps, "a b", "nowhere")
	replace(t, file, kubeconfig("a", "a", "b"))
	again := expect(t, steps, "a b", "")
	if !maps.Equal(good.set, again.set) {
		t.Error("clusters are replaced though nothing about them changed")
	}
}

func TestWatchChoosesContexts(t *testing.T) {
	nowhere(t)
	dir := t.TempDir()
	file := write(t, filepath.Join(dir, "config"), kubeconfig("prod-1", "prod-1", "prod-2", "test"))
	expect(t, follow(t, file, "nothing"), "", `no context "nothing" (it has prod-1, prod-2, test)`)
	expect(t, follow(t, file, "x-*"), "", "no context like x-*")
	expect(t, follow(t, filepath.Join(dir, "gone")), "", "no kubeconfig found")
	current, named, some := follow(t, file), follow(t, file, "test", "prod-2"), follow(t, file, "prod-*")
	expect(t, current, "prod-1", "")
	expect(t, named, "prod-2 test", "")
	expect(t, some, "prod-1 prod-2", "")
	replace(t, file, kubeconfig("prod-2", "prod-2", "prod-3"))
	expect(t, current, "prod-2", "")
	expect(t, named, "prod-2", "") // removed while running: not an error
	expect(t, some, "prod-2 prod-3", "")
	replace(t, file, kubeconfig("prod-2", "prod-2", "test"))
	expect(t, named, "prod-2 test", "")
}

// A mounted Kubernetes secret: the file is a symlink through ..data, which is
// swapped for another by rename.
func TestWatchFollowsAMountedSecret(t *testing.T) {
	nowhere(t)
	dir := t.TempDir()
	version := func(name, text string) {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, name, "config"), text)
		if err := os.Symlink(name, filepath.Join(dir, "..tmp")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, "..tmp"), filepath.Join(dir, "..data")); err != nil {
			t.Fatal(err)
		}
	}
	version("..1", kubeconfig("a", "a"))
	file := filepath.Join(dir, "config")
	if err := os.Symlink(filepath.Join("..data", "config"), file); err != nil {
		t.Fatal(err)
	}
	steps := follow(t, file)
	expect(t, steps, "a", "")
	for i, name := range []string{"b", "c", "d"} {
		version(fmt.Sprint("..", i+2), kubeconfig(name, name))
		expect(t, steps, name, "")
		if err := os.RemoveAll(filepath.Join(dir, fmt.Sprint("..", i+1))); err != nil {
			t.Fatal(err)
		}
	}
}

// The file lies elsewhere, in a folder that does not exist yet.
func TestWatchSeesAFolderAppear(t *testing.T) {
	nowhere(t)
	dir := t.TempDir()
	one := write(t, filepath.Join(dir, "one"), kubeconfig("a", "a"))
	two := filepath.Join(dir, "deep", "down", "two")
	t.Setenv("KUBECONFIG", one+string(filepath.ListSeparator)+two)
	steps := follow(t, "", "*")
	expect(t, steps, "a", "")
	if err := os.MkdirAll(filepath.Dir(two), 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, two, kubeconfig("b", "b"))
	expect(t, steps, "a b", "")
}

// Whatever happens to the file, in the end the set is what the file says, and
// no cluster is replaced about which nothing changed.
func TestWatchConverges(t *testing.T) {
	nowhere(t)
	// Each check waits for real files to settle: a few, unless more are asked for.
	if checks := flag.Lookup("rapid.checks"); checks.Value.String() == checks.DefValue {
		_ = checks.Value.Set("10")
		defer checks.Value.Set(checks.DefValue)
	}
	rapid.Check(t, func(r *rapid.T) {
		dir, err := os.MkdirTemp(t.TempDir(), "")
		if err != nil {
			r.Fatal(err)
		}
		file := write(t, filepath.Join(dir, "config"), kubeconfig("a", "a"))
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		var last map[string]*rest.Config
		steps := rapid.IntRange(1, 4).Draw(r, "steps")
		for set, err := range cluster.Watch(ctx, file, []string{"*"}) {
			for name, cfg := range set {
				if before := last[name]; before != nil && before != cfg && before.BearerToken == cfg.BearerToken {
					r.Fatalf("%s replaced without a change", name)
				}
			}
			last = set
			if err == nil && len(set) == 1 && set["end"] != nil {
				return
			}
			for range rapid.IntRange(0, 3).Draw(r, "edits") {
				switch rapid.IntRange(0, 2).Draw(r, "edit") {
				case 0:
					replace(t, file, "{")
				case 1:
					_ = os.Remove(file)
				case 2:
					write(t, file, kubeconfig("z", "z"))
				}
			}
			if steps--; steps <= 0 {
				replace(t, file, kubeconfig("end", "end"))
				continue
			}
			// Some stay as they were, one is always new, so that a step follows.
			names := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "c"}), 1, 3, rapid.ID).Draw(r, "names")
			replace(t, file, kubeconfig(names[0], append(names, fmt.Sprint("n", steps))...))
		}
		r.Fatalf("the last state is not reached: %v", last)
	})
}
