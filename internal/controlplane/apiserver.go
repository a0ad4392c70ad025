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
// [Cluster.KillAPIServer], on the same port and with the same data, and returns
// when it is ready. If it runs already, nothing happens.
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
	return p.await(ctx, c.ready)
}

func (c *Cluster) apiServerFlags() []string {
	flags := c.servingFlags(c.ports[0])
	flags = append(flags,
		"--etcd-servers=unix://"+c.etcdSocket(),
		// History goes when a test says so (see CompactEtcd), not by the clock.
		"--etcd-compaction-interval=0",

		// The address is found by looking at the machine's routes otherwise,
		// and a machine without a network has none. A loopback address cannot
		// be the endpoint of the service kubernetes, so it is left without.
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
		// Nobody makes the service account that it would demand of every pod.
		flags = append(flags, "--disable-admission-plugins=ServiceAccount")
	}
	return append(flags, c.options.apiServerFlags...)
}

// ready returns nil when the API server says that it is ready.
func (c *Cluster) ready(ctx context.Context) error {
	return isHealthy(ctx, c.AdminConfig(), "/readyz?verbose")
}

// isHealthy returns nil when the server of config says that it is, at path.
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

// URL returns the address of the API server, which is the cluster's for as long
// as it runs.
func (c *Cluster) URL() string { return c.ports[0].url() }

// StopAPIServer stops the API server as an administrator does: requests that
// are under way are answered, watches are closed. Until it is started again,
// connections to it are refused. It is killed if ctx ends first. If it does not
// run, nothing happens.
func (c *Cluster) StopAPIServer(ctx context.Context) error {
	return c.endAPIServer(ctx, syscall.SIGTERM)
}

// KillAPIServer ends the API server as a crash does: at once, with requests
// unanswered and connections cut. If it does not run, nothing happens.
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
// and with the same data. Its watch cache begins anew.
func (c *Cluster) RestartAPIServer(ctx context.Context) error {
	if err := c.StopAPIServer(ctx); err != nil {
		return err
	}
	return c.StartAPIServer(ctx)
}

// ForgetHistory makes every resourceVersion that was handed out before the call
// too old: etcd is compacted and the API server, whose watch cache would
// remember, is restarted. A watch from such a resourceVersion, or a list at
// exactly one, is answered 410 (a watch in its first event).
func (c *Cluster) ForgetHistory(ctx context.Context) error {
	if err := c.StopAPIServer(ctx); err != nil {
		return err
	}
	if err := c.CompactEtcd(ctx); err != nil {
		return err
	}
	return c.StartAPIServer(ctx)
}
