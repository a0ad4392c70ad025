package clientgo_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"
	fcache "k8s.io/client-go/tools/cache/testing"

	"github.com/tidings-io/tidings/informer"
	"github.com/tidings-io/tidings/informer/clientgo"
)

// observe returns the status of an informer of this package.
func observe(t *testing.T, inf interface{ LastSyncResourceVersion() string }) informer.Status {
	t.Helper()
	synctest.Wait()
	one, ok := clientgo.Observe(inf)
	if !ok {
		t.Fatalf("%T cannot be observed", inf)
	}
	return one.Status()
}

// waitFor waits for a status, and fails if it does not come.
func waitFor(t *testing.T, inf interface{ LastSyncResourceVersion() string }, what string, is func(informer.Status) bool) informer.Status {
	t.Helper()
	one, _ := clientgo.Observe(inf)
	deadline := time.After(time.Hour)
	for {
		changed := one.StatusChanged()
		if s := one.Status(); is(s) {
			return s
		}
		select {
		case <-changed:
		case <-deadline:
			t.Fatalf("it was never %s: %+v", what, one.Status())
		}
	}
}

func phase(p informer.Phase) func(informer.Status) bool {
	return func(s informer.Status) bool { return s.Phase == p }
}

func TestStatusOfASharedInformer(t *testing.T) {
	crash := utilruntime.ReallyCrash
	utilruntime.ReallyCrash = false
	defer func() { utilruntime.ReallyCrash = crash }()
	synctest.Test(t, func(t *testing.T) {
		server := newFlakyServer()
		server.write("ns/a", "red")
		refuse := &fault{verb: "list", times: 1, after: -1, err: errors.New("not yet")}
		forbid := &fault{verb: "list", times: 1, after: -1, err: apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", errors.New("no"))}
		server.noWatchList = true
		server.fault(refuse)
		server.fault(forbid)
		inf := clientgo.NewSharedIndexInformer(server, &corev1.Pod{}, 0, nil)
		before := func() {}
		reg, err := inf.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(any) { before() }})
		if err != nil {
			t.Fatal(err)
		}
		s := observe(t, inf)
		if s.Phase != informer.Stopped || s.Synced || s.Resource.Resource != "pods" || s.Resource.Version != "v1" || s.Expected != -1 || len(s.Handlers) != 1 {
			t.Errorf("before it runs it is %+v", s)
		}
		stop := inBackground(t, inf.RunWithContext)
		s = waitFor(t, inf, "waiting", phase(informer.Waiting))
		if s.LastError == nil || !strings.Contains(s.LastError.Error(), "not yet") || s.Errors != 1 || !s.Retry.After(time.Now()) || s.Lists != 0 {
			t.Errorf("when the list fails it is %+v", s)
		}
		waitFor(t, inf, "denied", phase(informer.Denied))
		waitFor(t, inf, "watching", phase(informer.Watching))
		s = observe(t, inf)
		if !s.Synced || s.Objects != 1 || s.Received != 1 || s.Lists != 1 || s.Watches != 1 || s.ResourceVersion != inf.LastSyncResourceVersion() || s.LastContact.IsZero() || s.LastError == nil {
			t.Errorf("watching it is %+v", s)
		}
		if h := s.Handlers[0]; !strings.Contains(h.Name, "TestStatusOfASharedInformer") || h.Delivered != 1 || h.Lag != 0 || !h.Synced {
			t.Errorf("the handler is %+v", h)
		}

		release := make(chan struct{})
		first := true
		before = func() {
			<-release
			if first {
				first = false
				panic("a bad day")
			}
		}
		for n := range 5 {
			server.write(fmt.Sprint("ns/", n), "red")
		}
		s = observe(t, inf)
		if h := s.Handlers[0]; s.Lag != 4 || h.Lag != 4 || h.Backlog != 4 || h.Delivered != 2 || h.BacklogSince.IsZero() || s.Objects != 6 || s.Events != 6 {
			t.Errorf("with a stuck handler it is %+v", s)
		}
		close(release)
		time.Sleep(2 * time.Second)
		s = observe(t, inf)
		if h := s.Handlers[0]; h.Lag != 0 || h.Delivered != 6 || h.Panics != 1 || h.LastPanic != "a bad day" {
			t.Errorf("after a panic the handler is %+v", h)
		}

		server.compact()
		server.drop(apierrors.NewResourceExpired("too old"))
		s = waitFor(t, inf, "listed again", func(s informer.Status) bool { return s.Lists == 2 })
		if !apierrors.IsResourceExpired(s.LastError) {
			t.Errorf("the last error is %v", s.LastError)
		}
		if err := inf.RemoveEventHandler(reg); err != nil {
			t.Fatal(err)
		}
		if s := observe(t, inf); len(s.Handlers) != 0 || s.Lag != 0 {
			t.Errorf("without handlers it is %+v", s)
		}
		stop()
		if s := observe(t, inf); s.Phase != informer.Stopped || s.Objects != 6 || !s.Synced {
			t.Errorf("stopped it is %+v", s)
		}
	})
}

func TestStatusOfAController(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newFlakyServer()
		server.write("ns/a", "red")
		release := make(chan struct{}, 10)
		l := &recordingHandler{t: t, before: func(string) { <-release }}
		_, control := clientgo.NewInformer(server, &corev1.Pod{}, 0, l)
		stop := inBackground(t, control.RunWithContext)
		if s := observe(t, control); s.Synced || s.Phase != informer.Watching || s.Handlers[0].Delivered != 1 || s.Handlers[0].Lag != 0 || s.Handlers[0].Synced {
			t.Errorf("with a stuck handler it is %+v", s)
		}
		for n := range 3 {
			server.write(fmt.Sprint("ns/", n), "red")
		}
		if s := observe(t, control); s.Objects != 1 || s.Handlers[0].Backlog != 3 {
			t.Errorf("what waits for the store does not wait for the handler: %+v", s)
		}
		for range 4 {
			release <- struct{}{}
		}
		s := observe(t, control)
		if h := s.Handlers[0]; !s.Synced || s.Objects != 4 || h.Lag != 0 || h.Backlog != 0 || h.Delivered != 4 || !h.Synced {
			t.Errorf("in the end it is %+v", s)
		}
		stop()
		if s := observe(t, control); s.Phase != informer.Stopped {
			t.Errorf("stopped it is %+v", s)
		}

		// With a queue of the caller's, only the source is observed.
		queue := cache.NewRealFIFOWithOptions(cache.RealFIFOOptions{KeyFunction: cache.MetaNamespaceKeyFunc, AtomicEvents: true})
		own := clientgo.New(&cache.Config{ListerWatcher: server, ObjectType: &corev1.Pod{}, Queue: queue, Process: func(any, bool) error { return nil }})
		if s := observe(t, own); s.Phase != informer.Stopped || len(s.Handlers) != 0 {
			t.Errorf("a controller with a queue of the caller's is %+v", s)
		}
	})
}

func TestObserve(t *testing.T) {
	source := fcache.NewFakeControllerSource()
	defer source.Shutdown()
	ours := clientgo.NewSharedIndexInformer(source, &corev1.Pod{}, 0, nil)
	for name, of := range map[string]interface{ LastSyncResourceVersion() string }{
		"typed":      cache.NewTypedSharedIndexInformer[*corev1.Pod](cache.NewTypedSharedIndexInformer[*corev1.Pod](ours)),
		"controller": ours.GetController(),
	} {
		if _, ok := clientgo.Observe(of); !ok {
			t.Errorf("%s cannot be observed", name)
		}
	}
	theirs := cache.NewSharedIndexInformer(source, &corev1.Pod{}, 0, nil)
	for name, of := range map[string]interface{ LastSyncResourceVersion() string }{
		"nil": nil, "client-go's": theirs, "client-go's, typed": cache.NewTypedSharedIndexInformer[*corev1.Pod](theirs),
	} {
		if _, ok := clientgo.Observe(of); ok {
			t.Errorf("%s can be observed", name)
		}
	}
}

func TestResourceInStatus(t *testing.T) {
	source := fcache.NewFakeControllerSource()
	defer source.Shutdown()
	deployments := schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	foo := &unstructured.Unstructured{}
	foo.SetGroupVersionKind(schema.GroupVersionKind{Group: "example.com", Version: "v2", Kind: "Foo"})
	for _, test := range []struct {
		example runtime.Object
		options cache.SharedIndexInformerOptions
		want    schema.GroupVersionResource
	}{
		{&corev1.Pod{}, cache.SharedIndexInformerOptions{}, schema.GroupVersionResource{Version: "v1", Resource: "pods"}},
		{foo, cache.SharedIndexInformerOptions{}, schema.GroupVersionResource{Group: "example.com", Version: "v2", Resource: "foos"}},
		{&metav1.PartialObjectMetadata{}, cache.SharedIndexInformerOptions{Identifier: (*cache.InformerName)(nil).WithResource(deployments)}, deployments},
		{&metav1.PartialObjectMetadata{}, cache.SharedIndexInformerOptions{}, schema.GroupVersionResource{Resource: "*v1.PartialObjectMetadata"}},
		{nil, cache.SharedIndexInformerOptions{ObjectDescription: "things"}, schema.GroupVersionResource{Resource: "things"}},
	} {
		one, _ := clientgo.Observe(clientgo.NewSharedIndexInformerWithOptions(source, test.example, test.options))
		if got := one.Status().Resource; got != test.want {
			t.Errorf("an informer of %T is said to be of %v", test.example, got)
		}
	}
}

func TestRegistry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := fcache.NewFakeControllerSource()
		defer source.Shutdown()
		var registry clientgo.Registry
		pods := registry.NewSharedIndexInformer(source, &corev1.Pod{}, 0, nil)
		nodes := clientgo.NewSharedIndexInformer(source, &corev1.Node{}, 0, nil)
		registry.Add(nodes)
		registry.Add(nodes)
		registry.Add(cache.NewSharedIndexInformer(source, &corev1.Secret{}, 0, nil)) // cannot be observed
		names := func() (out []string) {
			for _, s := range registry.Statuses() {
				out = append(out, s.Resource.Resource)
			}
			return out
		}
		if got := names(); !slices.Equal(got, []string{"pods", "nodes"}) {
			t.Errorf("it has %v", got)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		pods.RunWithContext(ctx)
		if got := names(); !slices.Equal(got, []string{"nodes"}) {
			t.Errorf("after one has stopped it has %v", got)
		}
	})
}

// provider records the metrics it gets.
type provider struct {
	mu   sync.Mutex
	seen map[string]int
}

// all is the global provider. It can be set only once in a process.
var all = &provider{seen: map[string]int{}}

type gauge func(float64)

func (g gauge) Set(v float64)     { g(v) }
func (g gauge) Observe(v float64) { g(v) }

func (p *provider) metric(what string, id cache.InformerNameAndResource) gauge {
	return func(float64) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.seen[fmt.Sprint(what, " of ", id.Name())]++
	}
}

func (p *provider) NewQueuedItemMetric(id cache.InformerNameAndResource) cache.GaugeMetric {
	return p.metric("queued", id)
}

func (p *provider) NewProcessingLatencyMetric(id cache.InformerNameAndResource) cache.HistogramMetric {
	return p.metric("latency", id)
}

func (p *provider) NewStoreResourceVersionMetric(id cache.InformerNameAndResource) cache.GaugeMetric {
	return p.metric("version", id)
}

// TestClientGoMetrics runs client-go's informers and ours with their own
// provider and with the global one: both report the same metrics.
func TestClientGoMetrics(t *testing.T) {
	clientgo.SetInformerMetricsProvider(all) // the first call counts
	all.mu.Lock()
	clear(all.seen)
	all.mu.Unlock()
	for _, own := range []bool{false, true} {
		for _, k := range kinds {
			for _, shared := range []bool{false, true} {
				name, p := fmt.Sprint(k.name, " shared=", shared, " own=", own), all
				id, err := cache.NewInformerName(name)
				if err != nil {
					t.Fatal(err)
				}
				identifier := id.WithResource(corev1.SchemeGroupVersion.WithResource("pods"))
				var asked cache.InformerMetricsProvider
				if own {
					p = &provider{seen: map[string]int{}}
					asked = p
				}
				synctest.Test(t, func(t *testing.T) {
					server := newFlakyServer()
					server.write("ns/a", "red")
					var run func(ctx context.Context)
					if shared {
						run = k.shared(server, &corev1.Pod{}, cache.SharedIndexInformerOptions{Identifier: identifier, InformerMetricsProvider: asked}).RunWithContext
					} else {
						_, control := k.single(cache.InformerOptions{ListerWatcher: server, ObjectType: &corev1.Pod{}, Handler: &recordingHandler{t: t}, Identifier: identifier, InformerMetricsProvider: asked})
						run = control.RunWithContext
					}
					stop := inBackground(t, run)
					synctest.Wait()
					stop()
				})
				p.mu.Lock()
				for _, what := range []string{"queued", "latency", "version"} {
					if p.seen[what+" of "+name] == 0 {
						t.Errorf("%s does not report %s", name, what)
					}
				}
				p.mu.Unlock()
				id.Release()
			}
		}
	}
}

// TestSlowHandlerBlocksTheSourceOfAController checks that no more changes are
// read from a watch than may wait for the one handler.
func TestSlowHandlerBlocksTheSourceOfAController(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newFlakyServer()
		release := make(chan struct{})
		l := &recordingHandler{t: t, before: func(string) { <-release }}
		_, control := clientgo.NewInformer(server, &corev1.Pod{}, time.Minute, l)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			control.RunWithContext(ctx)
		}()
		synctest.Wait()
		server.write("ns/a", "red")
		synctest.Wait() // the handler is stuck
		for range 9_000 {
			server.write("ns/a", "red")
		}
		time.Sleep(time.Hour) // resyncs do not pile up either
		synctest.Wait()
		server.mu.Lock()
		unread := 0
		for _, st := range server.streams {
			unread += len(st.events)
		}
		server.mu.Unlock()
		if s := observe(t, control); s.Handlers[0].Backlog > 5000 {
			t.Errorf("%d changes wait in memory, %d with the source", s.Handlers[0].Backlog, unread)
		}
		close(release)
		time.Sleep(time.Minute)
		synctest.Wait()
		if s := observe(t, control); s.ResourceVersion != fmt.Sprint(server.version) || s.Handlers[0].Backlog != 0 {
			t.Errorf("it does not catch up: %+v", s)
		}
		l.before = func(string) { <-ctx.Done() }
		for range 9_000 {
			server.write("ns/a", "red")
		}
		synctest.Wait()
		cancel() // while the source waits
		<-done
	})
}
