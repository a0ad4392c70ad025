package soak

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// leaseTime is longer than the time after which a publisher replaces another one that has
// fallen silent.
const leaseTime = 13 * time.Second

type heal = func(context.Context) error

func nothing(context.Context) error { return nil }

// faults returns the faults of NATS, of publishers and replicas, and of the API server.
func (f *fleet) faults() []fault {
	// of ends or pauses one part.
	of := func(name string, which func(context.Context, *rand.Rand) (*part, error), begin func(*part) error, end func(*part, context.Context) error, last time.Duration) fault {
		return fault{name, func(ctx context.Context, random *rand.Rand) (heal, error) {
			p, err := which(ctx, random)
			if err != nil {
				return nil, err
			}
			if err := begin(p); err != nil {
				return nil, err
			}
			Sleep(ctx, last)
			return func(ctx context.Context) error { return end(p, ctx) }, nil
		}}
	}
	killed := func(name string, which func(context.Context, *rand.Rand) (*part, error)) fault {
		return of(name, which, (*part).kill, (*part).start, 0)
	}
	paused := func(name string, which func(context.Context, *rand.Rand) (*part, error), last time.Duration) fault {
		return of(name, which, (*part).pause, func(p *part, _ context.Context) error { return p.resume() }, last)
	}
	leader := func(ctx context.Context, _ *rand.Rand) (*part, error) {
		b, err := f.brokers.leader(ctx, logStream)
		if err != nil {
			return nil, err
		}
		return b.part, nil
	}
	publisher := func(ctx context.Context, _ *rand.Rand) (*part, error) { return f.active(ctx) }
	broker := func(_ context.Context, random *rand.Rand) (*part, error) {
		return f.brokers.all[random.IntN(natsServers)].part, nil
	}
	cutOff := func(name string, which func(context.Context, *rand.Rand) (*part, error)) fault {
		return of(name, which, func(p *part) error { return f.brokers.of(p).cutOff() }, func(p *part, _ context.Context) error { return f.brokers.of(p).join() }, 12*time.Second)
	}
	replica := func(_ context.Context, random *rand.Rand) (*part, error) {
		return f.replicas[random.IntN(followers)], nil
	}
	allOfNATS := func(name string, end func(*part) error) fault {
		return fault{name, func(context.Context, *rand.Rand) (heal, error) {
			return f.brokers.start, f.brokers.stop(end)
		}}
	}
	deleted := func(name, stream string) fault {
		return fault{name, func(ctx context.Context, _ *rand.Rand) (heal, error) {
			return nothing, eventually(ctx, func(ctx context.Context) error { return f.brokers.js.DeleteStream(ctx, stream) })
		}}
	}
	purged := func(name, stream string) fault {
		return fault{name, func(ctx context.Context, _ *rand.Rand) (heal, error) {
			return nothing, eventually(ctx, func(ctx context.Context) error {
				s, err := f.brokers.js.Stream(ctx, stream)
				if err != nil {
					return err
				}
				return s.Purge(ctx)
			})
		}}
	}
	return []fault{
		killed("the leader of the log killed", leader),
		killed("a NATS server killed", broker),
		paused("the leader of the log paused", leader, 0),
		paused("a NATS server paused", broker, 5*time.Second),
		cutOff("the leader of the log cut off from the other servers", leader),
		cutOff("a NATS server cut off from the others", broker),
		allOfNATS("all of NATS killed", (*part).kill),
		allOfNATS("all of NATS restarted", (*part).stop),
		of("the store of a NATS server wiped", broker, func(p *part) error {
			return errors.Join(p.kill(), os.RemoveAll(f.brokers.of(p).store))
		}, (*part).start, 0),
		{"the stores of NATS restored from an earlier copy", f.restoreStores},
		{"acknowledged messages removed", f.removeMessages},
		deleted("the log deleted", logStream),
		deleted("the snapshots deleted", snapshotsStream),
		purged("the log purged", logStream),
		purged("the snapshots purged", snapshotsStream),
		killed("the publisher killed", publisher),
		paused("the publisher paused past its lease", publisher, leaseTime),
		paused("the publisher paused for a moment", publisher, 0),
		{"two publishers at once", f.endLog},
		{"the publisher killed, and etcd compacted meanwhile", func(ctx context.Context, _ *rand.Rand) (heal, error) {
			p, err := f.active(ctx)
			if err != nil {
				return nil, err
			}
			return p.start, errors.Join(p.kill(), f.cp.CompactEtcd(ctx))
		}},
		killed("a replica killed", replica),
		paused("a replica paused", replica, 8*time.Second),
		{"the API server killed", func(ctx context.Context, _ *rand.Rand) (heal, error) {
			return f.cp.StartAPIServer, f.cp.KillAPIServer(ctx)
		}},
		{"etcd compacted", func(ctx context.Context, _ *rand.Rand) (heal, error) { return nothing, f.cp.CompactEtcd(ctx) }},
		{"the API server has forgotten everything", func(ctx context.Context, _ *rand.Rand) (heal, error) {
			return nothing, f.cp.ForgetHistory(ctx)
		}},
	}
}

// restoreStores puts the stores of all servers back to what they were when this was last done, or some
// seconds ago.
func (f *fleet) restoreStores(ctx context.Context, random *rand.Rand) (heal, error) {
	if err := f.brokers.stop((*part).stop); err != nil {
		return nil, err
	}
	before, err := f.brokers.save()
	if err != nil {
		return nil, err
	}
	if before == "" {
		if err := f.brokers.start(ctx); err != nil {
			return nil, err
		}
		if err := f.brokers.ready(ctx); err != nil {
			return nil, err
		}
		Sleep(ctx, between(random, 5*time.Second, 10*time.Second))
		if err := f.brokers.stop((*part).stop); err != nil {
			return nil, err
		}
		if before, err = f.brokers.save(); err != nil {
			return nil, err
		}
	}
	if err := f.brokers.restore(before); err != nil {
		return nil, err
	}
	return f.brokers.start, nil
}

// removeMessages removes some of the newest messages of the log.
func (f *fleet) removeMessages(ctx context.Context, random *rand.Rand) (heal, error) {
	for range 5 {
		err := eventually(ctx, func(ctx context.Context) error {
			s, err := f.brokers.js.Stream(ctx, logStream)
			if err != nil {
				return err
			}
			last := s.CachedInfo().State.LastSeq
			if last < 10 {
				return nil
			}
			err = s.DeleteMsg(ctx, last-uint64(random.IntN(5)))
			if errors.Is(err, jetstream.ErrMsgNotFound) || errors.Is(err, jetstream.ErrMsgDeleteUnsuccessful) {
				return nil
			}
			return err
		})
		if err != nil {
			return nil, err
		}
		Sleep(ctx, between(random, 0, 300*time.Millisecond))
	}
	return nothing, nil
}

// endLog makes the publisher that waits believe that the other one has stopped.
func (f *fleet) endLog(ctx context.Context, random *rand.Rand) (heal, error) {
	for range 3 {
		err := eventually(ctx, func(ctx context.Context) error {
			_, err := f.brokers.js.Publish(ctx, logSubject+"end", nil)
			return err
		})
		if err != nil {
			return nil, err
		}
		Sleep(ctx, between(random, 0, 2*time.Second))
	}
	return nothing, nil
}
