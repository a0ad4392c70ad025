package informer_test

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/tidings-io/tidings/informer"
	"github.com/tidings-io/tidings/internal/fakeapi"
)

// culprits keeps what is reported of mutations.
type culprits struct {
	mu    sync.Mutex
	found []*informer.MutationError
}

func (c *culprits) report(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var found *informer.MutationError
	if errors.As(err, &found) {
		c.found = append(c.found, found)
	}
}

// take returns the reports since the last time.
func (c *culprits) take() []*informer.MutationError {
	c.mu.Lock()
	defer c.mu.Unlock()
	found := c.found
	c.found = nil
	return found
}

// Whatever way an object was come by, it is found if it is modified, once, and
// nothing is reported of those who only read.
func TestMutationsAreFound(t *testing.T) {
	for name, opts := range map[string][]informer.Option{"decoded": nil, "compact": {informer.Compact()}, "unshared": {informer.Unshared()}} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, fakeapi.Options{}, func(r *rig) {
				for _, name := range []string{"a", "b", "c"} {
					r.set("shop", name, "1")
				}
				var c culprits
				inf := r.configMapInformer(append(opts, informer.DetectMutations(c.report))...)
				index, err := inf.AddIndex("v", func(values []string, cm *corev1.ConfigMap) []string { return append(values, cm.Data["v"]) })
				r.must(err)
				r.must(inf.Start(r.ctx))
				get := func(name string) *corev1.ConfigMap {
					cm, ok := inf.Get("shop", name)
					if !ok {
						r.Fatalf("%s is not there", name)
					}
					return cm
				}
				view := inf.View()
				defer view.Release()
				ways := map[string]func() *corev1.ConfigMap{
					"Get":      func() *corev1.ConfigMap { return get("b") },
					"List":     func() *corev1.ConfigMap { return inf.List(informer.Query{Labels: labels.Everything()})[1] },
					"a View":   func() *corev1.ConfigMap { cm, _ := view.Get("shop", "b"); return cm },
					"an index": func() *corev1.ConfigMap { return index.Get("1")[1] },
				}
				for way, read := range ways {
					cm := read()
					time.Sleep(5 * time.Second)
					synctest.Wait()
					if found := c.take(); found != nil {
						t.Fatalf("%s: nobody has modified anything: %v", way, found[0])
					}
					cm.Labels = map[string]string{"way": way}
					get("a") // for the race detector: what was done is done
					time.Sleep(2 * time.Second)
					runtime.KeepAlive(cm) // what is compact is held by its readers alone
					found := c.take()
					if len(found) != 1 || len(found[0].Objects) != 1 || found[0].Objects[0] != "shop/b" {
						t.Fatalf("%s: the reports are %v", way, found)
					}
					if text := found[0].Error(); !strings.Contains(text, "configmaps of cluster test") || !strings.Contains(text, "shop/b:") || !strings.Contains(text, "DeepCopy") || !strings.Contains(text, `"way": "`+way+`"`) {
						t.Errorf("%s: the report is\n%s", way, text)
					}
					time.Sleep(5 * time.Second)
					synctest.Wait()
					if found := c.take(); found != nil {
						t.Errorf("%s: it is reported again: %v", way, found[0])
					}
				}
				// What was done since the last look is found at the end.
				last := get("c")
				last.Annotations = map[string]string{"way": "late"} // and not in the map that it shares with the others
				r.must(inf.Stop(r.ctx))
				runtime.KeepAlive(last)
				if found := c.take(); len(found) != 1 || found[0].Objects[0] != "shop/c" {
					t.Errorf("at the end the reports are %v", found)
				}
			})
		})
	}
}

// What a list has handed out is watched, even if nothing else has handed it out before.
func TestMutationsOfWhatIsListedAreFound(t *testing.T) {
	for name, read := range map[string]func(inf *informer.Informer[*corev1.ConfigMap]) []*corev1.ConfigMap{
		"List": func(inf *informer.Informer[*corev1.ConfigMap]) []*corev1.ConfigMap { return inf.List(informer.Query{}) },
		"Append": func(inf *informer.Informer[*corev1.ConfigMap]) []*corev1.ConfigMap {
			return inf.Append(nil, informer.Query{Namespace: "shop"})
		},
		"All": func(inf *informer.Informer[*corev1.ConfigMap]) []*corev1.ConfigMap {
			return slices.Collect(inf.All(informer.Query{}))
		},
		"a View": func(inf *informer.Informer[*corev1.ConfigMap]) []*corev1.ConfigMap {
			view := inf.View()
			defer view.Release()
			return view.List(informer.Query{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, fakeapi.Options{}, func(r *rig) {
				r.set("shop", "a", "1")
				var c culprits
				inf := r.configMapInformer(informer.DetectMutations(c.report))
				r.must(inf.Start(r.ctx))
				listed := read(inf)
				listed[0].Labels = map[string]string{"way": name}
				r.must(inf.Stop(r.ctx))
				if found := c.take(); len(found) != 1 || found[0].Objects[0] != "shop/a" {
					t.Errorf("the reports are %v", found)
				}
			})
		})
	}
}

// A handler or a loop that modifies what it is told of is named.
func TestMutatingHandlersAreNamed(t *testing.T) {
	inBubble(t, fakeapi.Options{}, func(r *rig) {
		var c culprits
		inf := r.configMapInformer(informer.DetectMutations(c.report))
		inf.AddHandler(informer.Handlers[*corev1.ConfigMap]{
			Update: func(old, _ *corev1.ConfigMap) { old.Data["v"] += " was" },
		}, informer.Named("meddler"))
		r.must(inf.Start(r.ctx))
		r.set("shop", "a", "1")
		synctest.Wait()
		if found := c.take(); found != nil {
			t.Fatalf("nobody has modified anything: %v", found[0])
		}
		r.set("shop", "a", "2")
		synctest.Wait()
		if found := c.take(); len(found) != 1 || !strings.Contains(found[0].Suspect, `"meddler"`) || !strings.Contains(found[0].Error(), "meddler") {
			t.Errorf("the reports are %v", found)
		}
		for e := range inf.Events(r.ctx, informer.Named("loop")) {
			if e.Type == informer.Added {
				e.Object.Annotations = map[string]string{"a": "b"}
				break
			}
		}
		if found := c.take(); len(found) != 1 || !strings.Contains(found[0].Suspect, `"loop"`) {
			t.Errorf("the reports of a loop are %v", found)
		}
	})
}

// Objects are watched as unstructured and metadata, too.
func TestMutationsOfOtherRepresentations(t *testing.T) {
	inBubble(t, fakeapi.Options{}, func(r *rig) {
		r.set("shop", "a", "1")
		var c culprits
		u, err := informer.New[*unstructured.Unstructured](r.conn, informer.Resource("configmaps"), informer.DetectMutations(c.report))
		r.must(err)
		r.stopAfter(u)
		r.must(u.Start(r.ctx))
		one, _ := u.Get("shop", "a")
		one.SetLabels(map[string]string{"a": "b"})
		u.Get("shop", "a")
		time.Sleep(2 * time.Second)
		if found := c.take(); len(found) != 1 {
			t.Errorf("the reports of an unstructured object are %v", found)
		}
		m, err := informer.New[*metav1.PartialObjectMetadata](r.conn, informer.Resource("configmaps"), informer.DetectMutations(c.report))
		r.must(err)
		r.stopAfter(m)
		r.must(m.Start(r.ctx))
		two, _ := m.Get("shop", "a")
		two.Labels = map[string]string{"a": "b"}
		m.Get("shop", "a")
		time.Sleep(2 * time.Second)
		if found := c.take(); len(found) != 1 {
			t.Errorf("the reports of metadata are %v", found)
		}
	})
}

// TestMutationEndsTheProcess runs itself in a process where the environment
// asks for detection, as people do with client-go.
func TestMutationEndsTheProcess(t *testing.T) {
	const child = "TIDINGS_TEST_MUTATION"
	if os.Getenv(child) != "" {
		inBubble(t, fakeapi.Options{}, func(r *rig) {
			r.set("shop", "a", "1")
			inf := r.configMapInformer()
			r.must(inf.Start(r.ctx))
			cm, _ := inf.Get("shop", "a")
			cm.Data["v"] = "mine"
			inf.Get("shop", "a")
			time.Sleep(time.Minute)
		})
		return
	}
	for value, want := range map[string]bool{"true": true, "1": true, "": false, "false": false} {
		cmd := exec.Command(os.Args[0], "-test.run=^TestMutationEndsTheProcess$")
		cmd.Env = append(os.Environ(), child+"=1", "KUBE_CACHE_MUTATION_DETECTOR="+value)
		out, err := cmd.CombinedOutput()
		if ended := err != nil; ended != want || want && (!strings.Contains(string(out), "panic: ") || !strings.Contains(string(out), "shop/a:") || !strings.Contains(string(out), `"v": "mine"`)) {
			t.Errorf("with %q the process ended with %v and\n%s", value, err, out)
		}
	}
}
