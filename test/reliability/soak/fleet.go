package soak

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/tidings-io/tidings/internal/controlplane"
)

const (
	publishers    = 2
	followers     = 3
	fleetLogSize  = "8Mi" // the least, so that the log drops its beginning
	fleetReplicas = "3"   // of each stream
)

// fleet is a run with NATS between the cluster and its mirrors.
type fleet struct {
	*soak
	brokers    *brokers
	publishers []*part
	replicas   []*part
}

// RunFleet is like [Run] for mirrors that follow the cluster on NATS: three servers, two
// publishers of which one publishes, and three replicas, all processes of their own. The cluster
// has no controllers.
func RunFleet(ctx context.Context, o Options) (*Report, error) {
	f := &fleet{soak: newSoak(o)}
	f.begin = f.readers
	var err error
	if f.soak.faults, err = f.chosen(f.faults()); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "tidings-soak-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	binary, err := f.binary(ctx, dir)
	if err != nil {
		return nil, err
	}
	if f.cp, err = controlplane.Launch(ctx); err != nil {
		return nil, err
	}
	defer func() { _ = f.cp.Stop() }()
	f.brokers, err = f.startBrokers(ctx, dir)
	defer f.brokers.close()
	if err != nil {
		return nil, err
	}
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if err := controlplane.WriteKubeconfig(kubeconfig, f.cp.AdminConfig()); err != nil {
		return nil, err
	}
	defer func() {
		for _, p := range append(f.publishers, f.replicas...) {
			_ = p.kill()
		}
	}()
	for i := range publishers {
		p, err := f.add(ctx, binary, dir, "publisher", fmt.Sprint("publisher-", i), "--kubeconfig", kubeconfig,
			"--publish", f.brokers.url, "--publish-as", published, "--stream-replicas", fleetReplicas, "--stream-size", fleetLogSize,
			"--resource", "configmaps", "--resource", "deployments", "--resource", "*")
		if err != nil {
			return nil, err
		}
		f.publishers = append(f.publishers, p)
	}
	for i := range followers {
		p, err := f.add(ctx, binary, dir, "replica", fmt.Sprint("replica-", i), append([]string{"--from", f.brokers.url}, smallLimits...)...)
		if err != nil {
			return nil, err
		}
		f.replicas = append(f.replicas, p)
	}
	if err := f.run(ctx); err != nil {
		return nil, err
	}
	return f.report, nil
}

// active returns the publisher that publishes.
func (f *fleet) active(ctx context.Context) (*part, error) {
	for {
		for _, p := range f.publishers {
			try, cancel := context.WithTimeout(ctx, tryTime)
			m, err := p.running().Metrics(try)
			cancel()
			if err == nil && m["tidings_publish_active"] == 1 {
				return p, nil
			}
		}
		if !Sleep(ctx, lookEvery) {
			return nil, fmt.Errorf("no publisher publishes: %w", ctx.Err())
		}
	}
}
