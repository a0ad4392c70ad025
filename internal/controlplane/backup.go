//go:build unix

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
)

// SaveEtcd copies etcd's data and returns a function that restores it, as an
// administrator does from a backup: it kills the API server and etcd, replaces
// etcd's data and starts both again. Revisions then continue from the saved
// one, and later writes are lost. SaveEtcd may be called once, and not on a
// cluster with controllers.
func (c *Cluster) SaveEtcd() (restore func(context.Context) error, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return nil, errStopped
	}
	// Stopped at any point, etcd leaves its files as a crash would.
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
	c.etcd = nil // the next one makes its own process group
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
