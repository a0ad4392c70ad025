//go:build unix

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
)

// AddAPIServer starts another API server on the same etcd, on a port of its own,
// and returns its address when it is ready. It knows the same users, has the same
// certificate, and runs until the cluster is stopped or stop is called, which
// stops it as [Cluster.StopAPIServer] does.
func (c *Cluster) AddAPIServer(ctx context.Context) (url string, stop func(context.Context) error, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return "", nil, errStopped
	}
	port, err := c.reservePort()
	if err != nil {
		return "", nil, err
	}
	p, err := c.run(c.bin, apiServer, append(c.apiServerFlags(), c.servingFlags(port)...)...) // the last of two counts
	if err != nil {
		return "", nil, err
	}
	c.live = append(c.live, p)
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	config := c.AdminConfig()
	config.Host = port.url()
	stop = func(ctx context.Context) error { return p.stop(ctx, syscall.SIGTERM) }
	return config.Host, stop, p.await(ctx, func(ctx context.Context) error { return isHealthy(ctx, config, "/readyz") })
}

// SaveEtcd copies what etcd has stored, and returns how to go back to that, as an
// administrator does with a backup: the API server and etcd are killed, etcd's
// data is replaced, and both are started again. Revisions then begin again at the
// one that was saved, and what was written since has never been. It may be called
// once, and not on a cluster with controllers.
func (c *Cluster) SaveEtcd() (restore func(context.Context) error, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return nil, errStopped
	}
	// Stopped in the middle of whatever it does, it leaves files as a crash would.
	if err := c.etcd.signal(syscall.SIGSTOP); err != nil {
		return nil, err
	}
	err = os.CopyFS(c.path("etcd-saved"), os.DirFS(c.path("etcd")))
	if err := errors.Join(err, c.etcd.signal(syscall.SIGCONT)); err != nil {
		return nil, fmt.Errorf("save what etcd has stored: %w", err)
	}
	return c.restoreEtcd, nil
}

func (c *Cluster) restoreEtcd(ctx context.Context) error {
	if err := c.KillAPIServer(ctx); err != nil {
		return err
	}
	if err := c.replaceEtcd(ctx); err != nil {
		return fmt.Errorf("restore what etcd had stored: %w", err)
	}
	return c.StartAPIServer(ctx)
}

func (c *Cluster) replaceEtcd(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return errStopped
	}
	if err := c.etcd.stop(ctx, syscall.SIGKILL); err != nil {
		return err
	}
	c.etcd = nil // the next one makes a process group of its own
	for _, socket := range []string{c.etcdSocket(), c.path("peer.sock")} {
		if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	if err := os.RemoveAll(c.path("etcd")); err != nil {
		return err
	}
	if err := os.Rename(c.path("etcd-saved"), c.path("etcd")); err != nil {
		return err
	}
	return c.startEtcd(ctx)
}
