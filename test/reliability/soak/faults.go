package soak

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tidings-io/tidings/cmd/tidings/test/reliability/faultproxy"
)

// fault is something that goes wrong. It lasts until the function
// that inject returns is called.
type fault struct {
	name   string
	inject func(ctx context.Context, random *rand.Rand) (heal func(context.Context) error, err error)
}

// mirrorFaults returns the faults between a cluster and its mirrors.
func (s *soak) mirrorFaults() []fault {
	rule := func(name string, r func(random *rand.Rand) faultproxy.Rule) fault {
		return fault{name, func(_ context.Context, random *rand.Rand) (func(context.Context) error, error) {
			one := r(random)
			remove := s.proxy.Add(&one)
			if one.Verb == "watch" || one.Verb == "" {
				s.proxy.CutOpen(nil) // open watches are not affected by the rule
			}
			return func(context.Context) error { remove(); return nil }, nil
		}}
	}
	wire := func(name string, begin func() error) fault {
		return fault{name, func(context.Context, *rand.Rand) (func(context.Context) error, error) {
			return func(context.Context) error { return s.wire.Heal() }, begin()
		}}
	}
	answer := func(name string, err *apierrors.StatusError) fault {
		return rule(name, func(*rand.Rand) faultproxy.Rule {
			return faultproxy.Rule{Action: faultproxy.Status(err)}
		})
	}
	frames := func(name string, action func(n int) faultproxy.Action) fault {
		return rule(name, func(random *rand.Rand) faultproxy.Rule {
			return faultproxy.Rule{Verb: "watch", Action: action(random.IntN(30))}
		})
	}
	none := schema.GroupResource{}
	all := []fault{
		{"connections refused", func(context.Context, *rand.Rand) (func(context.Context) error, error) {
			s.wire.Refuse()
			s.wire.Reset()
			return func(context.Context) error { return s.wire.Accept() }, nil
		}},
		wire("connections reset", func() error { s.wire.Reset(); return nil }),
		wire("connections half open", s.wire.HalfOpen),
		wire("nothing gets through", s.wire.Stall),
		wire("64 kB/s", func() error { return s.wire.Drip(64) }),
		wire("latency of 300 ms", func() error { return s.wire.Latency(300*time.Millisecond, 200*time.Millisecond) }),
		wire("packets of a few bytes", func() error { return s.wire.Slice(200, time.Millisecond) }),
		{"answers cut off in the middle", func(context.Context, *rand.Rand) (func(context.Context) error, error) {
			s.proxy.CutOpen(nil)
			return func(context.Context) error { return nil }, nil
		}},
		rule("lists cut off", func(random *rand.Rand) faultproxy.Rule {
			return faultproxy.Rule{Verb: "list", Action: faultproxy.Cut(int64(random.IntN(20_000)))}
		}),
		frames("watch events cut off", faultproxy.CutFrame),
		frames("watch events garbled", faultproxy.GarbleFrame),
		frames("watches that end in the middle of an event", faultproxy.TruncateFrame),
		frames("watches that end", faultproxy.EndAfter),
		frames("410 in a watch", func(n int) faultproxy.Action {
			return faultproxy.ErrorEvent(n, apierrors.NewResourceExpired("too old resource version"))
		}),
		frames("500 in a watch", func(n int) faultproxy.Action {
			return faultproxy.ErrorEvent(n, apierrors.NewInternalError(fmt.Errorf("etcdserver: no leader")))
		}),
		frames("watches that fall silent", faultproxy.StallAfter),
		rule("no bookmarks", func(*rand.Rand) faultproxy.Rule {
			return faultproxy.Rule{Verb: "watch", Action: faultproxy.DropBookmarks(true)}
		}),
		rule("410 at once", func(*rand.Rand) faultproxy.Rule {
			return faultproxy.Rule{Verb: "watch", Times: 3, Action: faultproxy.Status(apierrors.NewResourceExpired("too old resource version"))}
		}),
		answer("429", apierrors.NewTooManyRequests("too many requests", 1)),
		answer("500", apierrors.NewInternalError(fmt.Errorf("rpc error: etcd"))),
		answer("503", apierrors.NewServiceUnavailable("the server is starting")),
		answer("504", apierrors.NewTimeoutError("request did not complete within the allotted timeout", 1)),
		answer("401", apierrors.NewUnauthorized("the token has expired")),
		answer("403", apierrors.NewForbidden(none, "", fmt.Errorf("the role binding was taken away"))),
		rule("502 of a load balancer", func(*rand.Rand) faultproxy.Rule {
			return faultproxy.Rule{Action: faultproxy.Answer(http.StatusBadGateway, "text/html", "<html>502 Bad Gateway</html>")}
		}),
		{"API server killed", func(ctx context.Context, _ *rand.Rand) (func(context.Context) error, error) {
			return s.cp.StartAPIServer, s.cp.KillAPIServer(ctx)
		}},
		{"API server restarted", func(ctx context.Context, _ *rand.Rand) (func(context.Context) error, error) {
			return s.cp.StartAPIServer, s.cp.StopAPIServer(ctx)
		}},
		{"etcd compacted", func(ctx context.Context, _ *rand.Rand) (func(context.Context) error, error) {
			return func(context.Context) error { return nil }, s.cp.CompactEtcd(ctx)
		}},
		{"API server has forgotten everything", func(ctx context.Context, _ *rand.Rand) (func(context.Context) error, error) {
			s.wire.Refuse()
			s.wire.Reset()
			return func(ctx context.Context) error {
				if err := s.cp.ForgetHistory(ctx); err != nil {
					return err
				}
				return s.wire.Accept()
			}, nil
		}},
	}
	return all
}

// breakThings injects one fault after the other, each kind as often as another,
// until ctx ends.
func (s *soak) breakThings(ctx context.Context, random *rand.Rand, all []fault) error {
	var parts sync.WaitGroup
	defer parts.Wait()
	for {
		order := random.Perm(len(all))
		if m := s.options.Mutant; m != nil {
			if first := slices.IndexFunc(order, func(i int) bool { return all[i].name == m.Fault }); first >= 0 {
				order[0], order[first] = order[first], order[0]
			}
		}
		for _, i := range order {
			if !Sleep(ctx, between(random, time.Second, 4*time.Second)) {
				return nil
			}
			if err := s.breakOnce(ctx, all[i], random, &parts); err != nil {
				if ctx.Err() != nil {
					return nil
				}
				return fmt.Errorf("fault %q: %w", all[i].name, err)
			}
		}
	}
}

// breakOnce injects a fault, ends it, and waits until every reader that is not slow has
// all changes made in the meantime. By then the mirrors have them, so no later fault
// can keep them from the slow readers, which may take longer.
func (s *soak) breakOnce(ctx context.Context, f fault, random *rand.Rand, parts *sync.WaitGroup) error {
	record := s.report.fault(f.name)
	s.log.Info("fault", "name", f.name)
	heal, err := f.inject(ctx, random)
	if err != nil {
		return err
	}
	Sleep(ctx, between(random, 500*time.Millisecond, 6*time.Second))
	// End the fault even if the run has ended.
	patience, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Minute)
	defer cancel()
	if err := heal(patience); err != nil {
		return err
	}
	fast, slow := s.report.readers()
	version, begun := s.truth.newest(), time.Now()
	parts.Go(func() { s.recover(ctx, slow, version, begun, record) })
	s.recover(ctx, fast, version, begun, record)
	return nil
}

// recover waits until the readers have all events up to a version. A reader that does
// not get them in time has lost something.
func (s *soak) recover(ctx context.Context, waiting []*replay, version uint64, begun time.Time, record *faultRecord) {
	for len(waiting) > 0 && Sleep(ctx, 50*time.Millisecond) {
		still := waiting[:0]
		for _, p := range waiting {
			missing := p.covers(version)
			took, patience := time.Since(begun), s.options.Patience
			if p.slow { // it may be disconnected for most of that
				patience *= 2
			}
			switch {
			case len(missing) == 0:
				s.report.count("up to date in time", 1)
				s.report.recovered(record, p, took)
			case took > patience:
				p.lost(version, took, missing)
			default:
				still = append(still, p)
			}
		}
		waiting = still
	}
}
