//go:build unix

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"syscall"

	"k8s.io/client-go/rest"
)

const apiServer = "kube-apiserver"

var errStopped = errors.New("the control plane is stopped")

// StartAPIServer starts the API server again after [Cluster.StopAPIServer] or
// [Cluster.KillAPIServer], on the same port and with the same data. It returns
// when the server is ready. If the server runs already, nothing happens.
func (c *Cluster) StartAPIServer(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return errStopped
	}
	if c.apiServer != nil && !c.apiServer.ended() {
		return nil
	}
	p, err := c.run(c.bin, apiServer, c.apiServerFlags()...)
	if err != nil {
		return err
	}
	c.apiServer = p
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	return p.waitReady(ctx, c.ready)
}

func (c *Cluster) apiServerFlags() []string {
	flags := c.servingFlags(c.ports[0])
	flags = append(flags,
		"--etcd-servers=unix://"+c.etcdSocket(),
		// Tests decide when history is compacted (see CompactEtcd).
		"--etcd-compaction-interval=0",

		// By default the server takes its address from the machine's routes,
		// and a machine without a network has none. A loopback address cannot
		// be an endpoint of the Service kubernetes, so that gets no endpoints.
		"--advertise-address=127.0.0.1",
		"--endpoint-reconciler-type=none",

		"--token-auth-file="+c.path("tokens.csv"),
		"--authorization-mode=RBAC",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file="+c.path("tls.key"),
		"--service-account-signing-key-file="+c.path("tls.key"),
		"--service-cluster-ip-range=10.0.0.0/24",
		"--allow-privileged",
	)
	if !c.options.controllers {
		// The plugin demands a service account of every pod, and without
		// controllers there are none.
		flags = append(flags, "--disable-admission-plugins=ServiceAccount")
	}
	return append(flags, c.options.apiServerFlags...)
}

// ready returns nil when the API server reports that it is ready.
func (c *Cluster) ready(ctx context.Context) error {
	return isHealthy(ctx, c.AdminConfig(), "/readyz?verbose")
}

// isHealthy returns nil when the server of config reports at path that it is
// healthy.
func isHealthy(ctx context.Context, config *rest.Config, path string) error {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, config.Host+path, nil)
	if err != nil {
		return err
	}
	req.Close = true // a connection that is used again may be one to a process that has just ended
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusOK {
		return nil
	}
	checks, err := io.ReadAll(resp.Body)
	return errors.Join(fmt.Errorf("%s\n%s", resp.Status, checks), err)
}

// URL returns the address of the API server. It does not change during the life
// of the cluster.
func (c *Cluster) URL() string { return c.ports[0].url() }

// StopAPIServer stops the API server gracefully: it answers requests in
// progress and closes watches. Until it is started again, connections to it are
// refused. It is killed if ctx ends first. If it does not run, nothing happens.
func (c *Cluster) StopAPIServer(ctx context.Context) error {
	return c.endAPIServer(ctx, syscall.SIGTERM)
}

// KillAPIServer ends the API server as a crash does: at once, without answering
// requests, and with its connections cut. If it does not run, nothing happens.
func (c *Cluster) KillAPIServer(ctx context.Context) error {
	return c.endAPIServer(ctx, syscall.SIGKILL)
}

func (c *Cluster) endAPIServer(ctx context.Context, sig syscall.Signal) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return errStopped
	}
	if c.apiServer == nil {
		return nil
	}
	err := c.apiServer.stop(ctx, sig)
	if c.apiServer.ended() {
		c.apiServer = nil
	}
	return err
}

// RestartAPIServer stops the API server and starts it again, on the same port
// and with the same data. Its watch cache starts empty.
func (c *Cluster) RestartAPIServer(ctx context.Context) error {
	if err := c.StopAPIServer(ctx); err != nil {
		return err
	}
	return c.StartAPIServer(ctx)
}

// ForgetHistory makes every resourceVersion returned before the call too old.
// It compacts etcd and restarts the API server, to empty the watch cache. A
// watch from such a resourceVersion, or a list at exactly one, is answered with
// 410 (a watch in its first event).
func (c *Cluster) ForgetHistory(ctx context.Context) error {
	if err := c.StopAPIServer(ctx); err != nil {
		return err
	}
	if err := c.CompactEtcd(ctx); err != nil {
		return err
	}
	return c.StartAPIServer(ctx)
}

// AddAPIServer starts another API server on the same etcd, on a port of its
// own, and returns its address when it is ready. The server has the same users
// and the same certificate. It runs until stop is called, which stops it as
// [Cluster.StopAPIServer] does, or until the cluster is stopped.
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
	p, err := c.run(c.bin, apiServer, append(c.apiServerFlags(), c.servingFlags(port)...)...) // the last of repeated flags counts
	if err != nil {
		return "", nil, err
	}
	c.optional = append(c.optional, p)
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	config := c.AdminConfig()
	config.Host = port.url()
	stop = func(ctx context.Context) error { return p.stop(ctx, syscall.SIGTERM) }
	return config.Host, stop, p.waitReady(ctx, func(ctx context.Context) error { return isHealthy(ctx, config, "/readyz") })
}
