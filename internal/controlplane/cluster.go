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
// seconds, but longer on a machine that is busy building.
const startTimeout = 3 * time.Minute

// A Cluster is a running control plane. Its methods are safe for concurrent
// use.
type Cluster struct {
	dir            string // holds all files that the cluster writes
	bin            string // folder of kube-apiserver, etcd and kubectl
	binControllers string // folder of the controllers' programs, or "" if not needed
	options        options
	ports          []*port // the first is the API server's
	ca             []byte  // PEM, of the certificate that the programs serve with
	reaper         *reaper
	etcd           *process
	optional       []*process // controllers, kwok, further API servers

	mu        sync.Mutex
	apiServer *process // nil while it is stopped
	stopped   bool
}

// Start starts a cluster for one test and stops it when the test ends. It
// builds the programs if they are missing (see [Build]) and returns when the
// cluster is ready for use. If that fails it ends the test. Under go test
// -short it skips the test.
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

// testContext ends a little before the test's deadline, so that a build or
// start that takes too long returns an error before go test panics.
func testContext(tb testing.TB) (context.Context, context.CancelFunc) {
	const margin = 10 * time.Second
	if t, ok := tb.(*testing.T); ok {
		if deadline, ok := t.Deadline(); ok {
			return context.WithDeadlineCause(tb.Context(), deadline.Add(-margin),
				errors.New("go test's -timeout is about to end; build the control plane without a timeout with "+
					"go run ./internal/controlplane/cmd/build"))
		}
	}
	return context.WithCancel(tb.Context())
}

// Launch starts a cluster and returns when it is ready for use: the API server
// reports at /readyz that it is ready, and the namespaces default and
// [Namespace] and the rights of every [User] exist. It builds the programs if
// they are missing (see [Build]).
//
// The cluster runs until [Cluster.Stop]; the end of ctx does not stop it. If
// this process ends without stopping the cluster, even by a panic or SIGKILL,
// the cluster's processes are killed and its files removed.
//
// An error contains the last log lines of the program that failed.
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
		c.binControllers, err = BuildControllers(ctx)
	}
	return err
}

func (c *Cluster) start(ctx context.Context) (err error) {
	// The name is short because the path of a Unix socket in it may not exceed
	// 104 bytes.
	if c.dir, err = os.MkdirTemp("", "tidings-cp-"); err != nil {
		return fmt.Errorf("make a folder for the cluster: %w", err)
	}
	if c.reaper, err = startReaper(c.dir); err != nil {
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
	return c.startOptional(ctx)
}

// writeFiles writes the files that the programs read: serving certificate and
// key, the users' tokens and kubeconfigs.
func (c *Cluster) writeFiles() error {
	loopback := net.IPv4(127, 0, 0, 1)
	cert, key, err := certutil.GenerateSelfSignedCertKey(loopback.String(), []net.IP{loopback},
		[]string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"})
	if err != nil {
		return fmt.Errorf("make a certificate: %w", err)
	}
	c.ca = cert // ends with the authority that signed it
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

// Stop kills the cluster's processes and removes its files. Both are gone when
// it returns. Stopping a stopped cluster does nothing.
func (c *Cluster) Stop() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return nil
	}
	c.stopped = true

	// The data is discarded, so a graceful stop gains nothing.
	var errs []error
	for _, p := range c.running() {
		if err := p.signal(syscall.SIGKILL); err != nil {
			errs = append(errs, err)
			continue
		}
		<-p.done
	}
	if c.reaper != nil {
		if len(errs) == 0 {
			errs = append(errs, c.reaper.kill(0))
		}
		errs = append(errs, c.reaper.clean())
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

// running returns the processes that have been started and not stopped, in the
// order to stop them.
func (c *Cluster) running() []*process {
	running := slices.Clone(c.optional)
	if c.apiServer != nil {
		running = append(running, c.apiServer)
	}
	if c.etcd != nil {
		running = append(running, c.etcd)
	}
	return running
}

// BinDir returns the folder of kube-apiserver, etcd and kubectl, as [Build]
// does. It outlives the cluster.
func (c *Cluster) BinDir() string { return c.bin }

// PID returns the process id of a running program of the cluster, such as
// "etcd" or "kube-apiserver", to measure its resource use. It returns 0 if the
// program does not run.
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

// Logs returns the logs of the cluster's programs so far, one program after the
// other, each under its name. It is empty once the cluster is stopped.
func (c *Cluster) Logs() string {
	logs, err := filepath.Glob(c.path("*.log"))
	if err != nil {
		return err.Error() // cannot happen: the pattern is valid
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

// path returns the path of a file of the cluster.
func (c *Cluster) path(name string) string { return filepath.Join(c.dir, name) }

// run starts a program from the folder bin. It logs to a file of its name.
func (c *Cluster) run(bin, program string, args ...string) (*process, error) {
	cmd := exec.Command(filepath.Join(bin, program), args...)
	cmd.Dir = c.dir
	cmd.Env = c.environment()
	pgid := 0
	if c.etcd != nil {
		pgid = c.etcd.pid // etcd is started first and leads the process group
	}
	return startProcess(cmd, c.path(program+".log"), pgid)
}

// environment returns the environment of the cluster's programs. Its HOME keeps
// them out of the user's home.
func (c *Cluster) environment() []string { return append(os.Environ(), "HOME="+c.path("home")) }

// AdminConfig returns [Cluster.Config] of [Admin].
func (c *Cluster) AdminConfig() *rest.Config { return c.Config(Admin) }

// NamespacedUserConfig returns [Cluster.Config] of [NamespacedUser].
func (c *Cluster) NamespacedUserConfig() *rest.Config { return c.Config(NamespacedUser) }

// NobodyConfig returns [Cluster.Config] of [Nobody].
func (c *Cluster) NobodyConfig() *rest.Config { return c.Config(Nobody) }
