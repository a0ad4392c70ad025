package churn

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand"
	"path"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/tidings-io/tidings/internal/controlplane"
)

const (
	poll         = 10 * time.Millisecond // interval
	phaseTimeout = time.Minute           // for each phase
	sentinel     = "sentinel"
)

// phase is what happened on one engine in a phase.
type phase struct {
	name     string
	took     time.Duration
	steps    []step
	requests map[string][]request // by collection
	calls    []Call
	// racy is set if requests and calls depend on timing, outage if requests
	// may have failed.
	racy, outage bool
}

// record is all that one engine did.
type record struct {
	engine string
	value  func(map[string]any) (int, bool)
	phases []phase
	end    []string // the objects, as JSON
}

// String formats the record.
func (r *record) String() string {
	var out strings.Builder
	for _, p := range r.phases {
		fmt.Fprintf(&out, "%s: %d steps, %d calls, %.1f s\n%s", p.name, len(p.steps), len(p.calls), p.took.Seconds(), p.requestLog())
	}
	return out.String()
}

// runner takes one engine through the phases.
type runner struct {
	Subject
	engine    Engine
	cluster   *controlplane.Cluster
	barrier   *barrier
	client    kubernetes.Interface
	namespace string
	driver    Driver
	plan      *plan
	sentinel  Parent // its current state
	recorder  *recorder
	config    *rest.Config // of the controller
	record    *record
}

func (s Subject) run(ctx context.Context, cp *controlplane.Cluster, barrier *barrier, engine Engine, seed int64) (*record, error) {
	config := rest.CopyConfig(cp.AdminConfig())
	config.QPS = -1 // no limit
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	namespace := s.Name + "-on-" + engine.Name
	if _, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}); err != nil {
		return nil, err
	}
	var collections []string
	for _, path := range s.Collections {
		collections = append(collections, strings.ReplaceAll(path, "NAMESPACE", namespace))
	}
	r := &runner{
		Subject: s, engine: engine, cluster: cp, barrier: barrier, client: client, namespace: namespace, driver: s.Driver(client, namespace), plan: newPlan(seed),
		recorder: newRecorder(normalizer{namespace}, collections), config: rest.CopyConfig(config),
		record: &record{engine: engine.Name, value: s.Value},
	}
	// The recorder reads JSON.
	r.config.ContentType = runtime.ContentTypeJSON
	r.config.AcceptContentTypes = runtime.ContentTypeJSON
	r.config.Wrap(r.recorder.wrap)
	if err := r.phases(ctx); err != nil {
		return nil, err
	}
	return r.record, nil
}

// phases runs all phases.
func (r *runner) phases(ctx context.Context) (err error) {
	p := r.plan
	if err := r.do(ctx, p.many(12, true, false)); err != nil {
		return err
	}
	stop := r.start(ctx, 1)
	defer func() { err = errors.Join(err, stop()) }()
	if err := r.phase(ctx, phase{name: "first list"}, nil); err != nil {
		return err
	}
	for round := range 6 {
		if err := r.phase(ctx, phase{name: fmt.Sprint("round ", round), steps: p.each(5)}, r.do); err != nil {
			return err
		}
	}
	if err := r.phase(ctx, phase{name: "watches broken and resumed", steps: p.each(5)}, r.whileBlocked(nil)); err != nil {
		return err
	}
	if err := r.phase(ctx, phase{name: "history lost while parents changed", steps: p.many(30, true, false)}, r.whileBlocked(r.cluster.ForgetHistory)); err != nil {
		return err
	}
	if err := r.phase(ctx, phase{name: "history lost while children changed", steps: p.many(12, false, true)}, r.whileBlocked(r.cluster.ForgetHistory)); err != nil {
		return err
	}
	if err := r.phase(ctx, phase{name: "API server killed and started again", outage: true}, r.outage); err != nil {
		return err
	}
	if err := r.phase(ctx, phase{name: "after the API server's restart", steps: p.each(5)}, r.do); err != nil {
		return err
	}
	if err := stop(); err != nil {
		return err
	}
	steps := p.many(30, true, true)
	if err := r.do(ctx, steps); err != nil {
		return err
	}
	stop = r.start(ctx, 1)
	if err := r.phase(ctx, phase{name: "controller started again"}, nil); err != nil {
		return err
	}
	if err := stop(); err != nil {
		return err
	}
	stop = r.start(ctx, 3)
	if err := r.phase(ctx, phase{name: "controller with three workers"}, nil); err != nil {
		return err
	}
	if err := r.phase(ctx, phase{name: "burst", steps: append(p.many(400, true, true), p.all()...), racy: true}, r.burst); err != nil {
		return err
	}
	if err := stop(); err != nil {
		return err
	}
	_, late := r.recorder.drain()
	if len(late) > 0 {
		return fmt.Errorf("called after all was done: %v", late)
	}
	r.record.end, err = r.objects(ctx)
	return err
}

// start starts the controller. The returned function stops it.
func (r *runner) start(ctx context.Context, workers int) (stop func() error) {
	r.recorder.reset()
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- r.engine.Run(ctx, r.config, r.namespace, workers) }()
	stopped := false
	return func() error {
		if stopped {
			return nil
		}
		stopped = true
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			return fmt.Errorf("run the controller: %w", err)
		}
		return nil
	}
}

// phase runs the steps of p and records what the engine does.
func (r *runner) phase(ctx context.Context, p phase, do func(context.Context, []step) error) error {
	ctx, cancel := context.WithTimeout(ctx, phaseTimeout)
	defer cancel()
	start := time.Now()
	if do != nil {
		if err := do(ctx, p.steps); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	err := r.settle(ctx)
	p.requests, p.calls = r.recorder.drain()
	if err != nil {
		return fmt.Errorf("%s: %w\nrequested:\n%s\ncalled:\n\t%s", p.name, err, p.requestLog(), strings.Join(lines(p.calls), "\n\t"))
	}
	p.calls = slices.DeleteFunc(p.calls, aboutSentinel)
	p.took = time.Since(start)
	r.record.phases = append(r.record.phases, p)
	return nil
}

// requestLog formats the requests of all reflectors.
func (p phase) requestLog() string {
	var out strings.Builder
	for _, collection := range slices.Sorted(maps.Keys(p.requests)) {
		asked := lines(p.requests[collection])
		for len(asked) > 0 {
			n := 1
			for n < len(asked) && asked[n] == asked[0] {
				n++
			}
			fmt.Fprintf(&out, "\t%d × %s: %s\n", n, path.Base(collection), asked[0])
			asked = asked[n:]
		}
	}
	return out.String()
}

func aboutSentinel(c Call) bool { return isSentinel(c.String()) }

// do runs steps, one after the other.
func (r *runner) do(ctx context.Context, steps []step) error {
	for _, s := range steps {
		var err error
		switch s.op {
		case opApply:
			err = r.driver.Apply(ctx, s.name, s.to)
		case opDelete:
			err = r.driver.Delete(ctx, s.name)
		case opDeleteChild:
			err = r.driver.DeleteChild(ctx, s.name, s.to, s.number())
		case opCorruptChild:
			err = r.driver.CorruptChild(ctx, s.name, s.to, s.number())
		}
		if err != nil {
			return fmt.Errorf("%s %s: %w", s.op, s.name, err)
		}
	}
	return nil
}

// whileBlocked runs steps while the controller cannot see them, and then calls
// then before it can.
func (r *runner) whileBlocked(then func(context.Context) error) func(context.Context, []step) error {
	return func(ctx context.Context, steps []step) error {
		if err := r.recorder.block(ctx); err != nil {
			return err
		}
		defer r.recorder.unblock()
		if err := r.do(ctx, steps); err != nil {
			return err
		}
		if then != nil {
			return r.barrier.do(ctx, then)
		}
		return nil
	}
}

// outage kills the API server and starts it again. The reflectors' versions are
// then too old for it, because the last change before was of another resource.
func (r *runner) outage(ctx context.Context, _ []step) error {
	if err := r.recorder.waitStable(ctx); err != nil {
		return err
	}
	return r.barrier.do(ctx, func(ctx context.Context) error {
		note := []byte(`{"metadata":{"annotations":{"note":"before the outage"}}}`)
		if _, err := r.client.CoreV1().Namespaces().Patch(ctx, r.namespace, types.MergePatchType, note, metav1.PatchOptions{}); err != nil {
			return err
		}
		if err := r.cluster.KillAPIServer(ctx); err != nil {
			return err
		}
		return r.cluster.StartAPIServer(ctx)
	})
}

// burst runs steps as fast as it can. Watches break at random. Once, near the
// end, the new watches break at once too, which leads to new lists.
func (r *runner) burst(ctx context.Context, steps []step) error {
	rng := rand.New(rand.NewSource(int64(len(steps))))
	brokenTwice := false
	for len(steps) > 0 {
		n := min(len(steps), 1+rng.Intn(80))
		if err := r.do(ctx, steps[:n]); err != nil {
			return err
		}
		steps = steps[n:]
		r.recorder.breakWatches()
		if len(steps) < 100 && !brokenTwice {
			brokenTwice = true
			if err := r.recorder.waitOpen(ctx); err != nil {
				return err
			}
			r.recorder.breakWatches()
		}
	}
	return nil
}

// objects returns everything that the controller could have changed.
func (r *runner) objects(ctx context.Context) ([]string, error) {
	var all []string
	for _, path := range r.recorder.collections {
		body, err := r.client.CoreV1().RESTClient().Get().AbsPath(path).SetHeader("Accept", runtime.ContentTypeJSON).Do(ctx).Raw()
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", path, err)
		}
		objects, err := itemsOf(r.recorder.normalizer, body)
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", path, err)
		}
		all = append(all, objects...)
	}
	return slices.DeleteFunc(all, isSentinel), nil
}
