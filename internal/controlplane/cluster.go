//go:build unix

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	certutil "k8s.io/client-go/util/cert"
)

// startTimeout bounds how long a program may take to become ready. It takes
// seconds, but on a machine that is busy building it may take a while.
const startTimeout = 3 * time.Minute

// A Cluster is a running control plane. Its methods may be called from any
// goroutine.
type Cluster struct {
	dir     string // of everything the cluster writes
	bin     string // of kube-apiserver, etcd and kubectl
	binLive string // of the rest, or "" if there is none
	options options
	ports   []*port // the first is the API server's
	ca      []byte  // PEM, of the certificate that the programs serve with
	janitor *janitor
	etcd    *process
	live    []*process

	mu        sync.Mutex
	apiServer *process // nil while it is stopped
	stopped   bool
}

// Start starts a cluster for one test and stops it when the test ends. It
// builds the programs if need be (see [Build]), returns when the cluster is
// ready for use, and ends the test if that fails. Under go test -short it skips
// the test.
func Start(tb testing.TB, opts ...Option) *Cluster {
	tb.Helper()
	skipIfShort(tb)
	ctx, cancel := testContext(tb)
	defer cancel()
	c, err := Launch(ctx, opts...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := c.Stop(); err != nil {
			tb.Error(err)
		}
	})
	return c
}

func skipIfShort(tb testing.TB) {
	tb.Helper()
	if testing.Short() {
		tb.Skip("needs a control plane, which -short leaves out")
	}
}

// testContext ends a little before the test's deadline, so that a build or a
// start that takes too long is an error and not a panic of go test's.
func testContext(tb testing.TB) (context.Context, context.CancelFunc) {
	const margin = 10 * time.Second
	if t, ok := tb.(*testing.T); ok {
		if deadline, ok := t.Deadline(); ok {
			return context.WithDeadlineCause(tb.Context(), deadline.Add(-margin),
				errors.New("go test's -timeout is about to end; to build the control plane outside of it, "+
					"run go run ./internal/controlplane/cmd/build"))
		}
	}
	return context.WithCancel(tb.Context())
}

// Launch starts a cluster and returns when it is ready for use: the API server
// says so at /readyz, and the namespaces default and [Namespace] and the rights
// of every [User] are there. It builds the programs if need be (see [Build]).
//
// The cluster runs until [Cluster.Stop], whatever becomes of ctx, and at the
// longest until this process ends: should it end without stopping the cluster,
// by a panic or even by SIGKILL, the cluster's processes are killed and its
// files removed all the same.
//
// An error carries the last of what the program that failed has logged.
func Launch(ctx context.Context, opts ...Option) (*Cluster, error) {
	c := &Cluster{}
	for _, opt := range opts {
		opt(&c.options)
	}
	if err := c.build(ctx); err != nil {
		return nil, fmt.Errorf("start a control plane: %w", err)
	}
	if err := c.start(ctx); err != nil {
		return nil, fmt.Errorf("start a control plane: %w", errors.Join(err, c.Stop()))
	}
	return c, nil
}

func (c *Cluster) build(ctx context.Context) (err error) {
	if c.bin, err = Build(ctx); err != nil {
		return err
	}
	if c.options.controllers || c.options.nodes > 0 {
		c.binLive, err = BuildLive(ctx)
	}
	return err
}

func (c *Cluster) start(ctx context.Context) (err error) {
	// A short name: the path of a Unix socket in it may not exceed 104 bytes.
	if c.dir, err = os.MkdirTemp("", "tidings-cp-"); err != nil {
		return fmt.Errorf("make a folder for the cluster: %w", err)
	}
	if c.janitor, err = startJanitor(c.dir); err != nil {
		return err
	}
	if _, err := c.reservePort(); err != nil {
		return err
	}
	if err := c.writeFiles(); err != nil {
		return err
	}
	if err := c.startEtcd(ctx); err != nil {
		return err
	}
	if err := c.StartAPIServer(ctx); err != nil {
		return err
	}
	if err := c.setUp(ctx); err != nil {
		return err
	}
	return c.startLive(ctx)
}

// writeFiles writes what the programs read: the certificate and key that they
// serve with, the users' tokens and kubeconfigs.
func (c *Cluster) writeFiles() error {
	loopback := net.IPv4(127, 0, 0, 1)
	cert, key, err := certutil.GenerateSelfSignedCertKey(loopback.String(), []net.IP{loopback},
		[]string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"})
	if err != nil {
		return fmt.Errorf("make a certificate: %w", err)
	}
	c.ca = cert // it ends with the authority that signed it
	files := map[string][]byte{"tls.crt": cert, "tls.key": key, "tokens.csv": tokenFile()}
	for name, content := range files {
		if err := os.WriteFile(c.path(name), content, 0o600); err != nil {
			return fmt.Errorf("write the control plane's configuration: %w", err)
		}
	}
	for _, user := range users {
		if err := WriteKubeconfig(c.Kubeconfig(user), c.Config(user)); err != nil {
			return err
		}
	}
	return nil
}

// Stop kills the cluster's processes and removes its files. They are gone when
// it returns. Stopping a stopped cluster does nothing.
func (c *Cluster) Stop() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return nil
	}
	c.stopped = true

	// Its data is thrown away, so nothing is to be gained by asking nicely.
	var errs []error
	for _, p := range c.running() {
		if err := p.signal(syscall.SIGKILL); err != nil {
			errs = append(errs, err)
			continue
		}
		<-p.done
	}
	if c.janitor != nil {
		if len(errs) == 0 {
			errs = append(errs, c.janitor.kill(0))
		}
		errs = append(errs, c.janitor.clean())
	} else if c.dir != "" {
		errs = append(errs, os.RemoveAll(c.dir))
	}
	for _, port := range c.ports {
		port.release()
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("stop the control plane: %w", err)
	}
	return nil
}

// running are the processes that have been started and not been stopped, those
// first that others can do without.
func (c *Cluster) running() []*process {
	running := slices.Clone(c.live)
	if c.apiServer != nil {
		running = append(running, c.apiServer)
	}
	if c.etcd != nil {
		running = append(running, c.etcd)
	}
	return running
}

// BinDir returns the folder that holds kube-apiserver, etcd and kubectl, which
// [Build] returned. It outlives the cluster.
func (c *Cluster) BinDir() string { return c.bin }

// PID returns the process id of a running program of the cluster, such as
// "etcd" or "kube-apiserver", for those who measure what it uses. It is 0 when
// the program does not run.
func (c *Cluster) PID(program string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.running() {
		if p.name == program && !p.ended() {
			return p.pid
		}
	}
	return 0
}

// Logs returns everything that the cluster's programs have logged so far, the
// programs one after the other, each under its name. It is empty once the
// cluster is stopped.
func (c *Cluster) Logs() string {
	logs, err := filepath.Glob(c.path("*.log"))
	if err != nil {
		return err.Error() // the pattern is bad, which it is not
	}
	var all strings.Builder
	for _, path := range logs {
		log, err := os.ReadFile(path)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			log = []byte(err.Error() + "\n")
		}
		fmt.Fprintf(&all, "==> %s <==\n%s", strings.TrimSuffix(filepath.Base(path), ".log"), log)
	}
	return all.String()
}

// path is that of a file of the cluster.
func (c *Cluster) path(name string) string { return filepath.Join(c.dir, name) }

// run starts a program in the folder bin, which logs to a file of its name.
func (c *Cluster) run(bin, program string, args ...string) (*process, error) {
	cmd := exec.Command(filepath.Join(bin, program), args...)
	cmd.Dir = c.dir
	cmd.Env = c.environment()
	pgid := 0
	if c.etcd != nil {
		pgid = c.etcd.pid // etcd, the first, has made the group for the rest
	}
	return startProcess(cmd, c.path(program+".log"), pgid)
}

// environment is that of the cluster's programs, which are to find and leave
// nothing in the user's home.
func (c *Cluster) environment() []string { return append(os.Environ(), "HOME="+c.path("home")) }

// AdminConfig is [Cluster.Config] of [Admin].
func (c *Cluster) AdminConfig() *rest.Config { return c.Config(Admin) }

// NamespacedUserConfig is [Cluster.Config] of [NamespacedUser].
func (c *Cluster) NamespacedUserConfig() *rest.Config { return c.Config(NamespacedUser) }

// NobodyConfig is [Cluster.Config] of [Nobody].
func (c *Cluster) NobodyConfig() *rest.Config { return c.Config(Nobody) }
