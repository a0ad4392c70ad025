package cli

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/tidings-io/tidings/cluster"
	"github.com/tidings-io/tidings/cmd/tidings/internal/access"
	"github.com/tidings-io/tidings/cmd/tidings/internal/server"
)

// The values of --authentication.
const (
	authenticateUpstream = "upstream"
	authenticateNone     = "none"
)

// admission holds the flags of serve for connections and callers.
type admission struct {
	authentication    string
	clientCA          string
	certFile, keyFile string
	certDir           string
	kubeconfig        string
	users             bool
	external          string
	anyone            bool
	grace             time.Duration
	limits            server.Options

	authority []byte // signed the generated certificate
}

func (a *admission) flags(g *globals, cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&a.authentication, "authentication", authenticateNone, "`how` callers authenticate: upstream, as at the API server, with the rights they have there; or none, for this machine only")
	f.StringVar(&a.clientCA, "client-ca-file", "", "PEM `file` of the authorities whose client certificates are accepted (default: those that the API server accepts)")
	f.StringVar(&a.certFile, "tls-cert-file", "", "PEM `file` of the certificate to serve with; reloaded when it changes (default, with authentication: one by a self-made authority)")
	f.StringVar(&a.keyFile, "tls-private-key-file", "", "PEM `file` of its key")
	f.StringVar(&a.certDir, "tls-cert-dir", "", "`folder` to keep the self-made authority in, so that clients that trust it do so after a restart; made if there is none (default: a new authority at each start)")
	f.StringVar(&a.external, "external-url", "", "`URL` at which clients reach the server, such as https://mirror.example.com:8443; for --write-kubeconfig and the self-made certificate")
	f.StringVar(&a.kubeconfig, "write-kubeconfig", "", "write a kubeconfig to this `file` for clients of the mirror: your contexts with another server, without users")
	f.BoolVar(&a.users, "write-kubeconfig-users", false, "have your users in that kubeconfig, with your credentials: for yourself only")
	f.BoolVar(&a.anyone, "insecure-serve-anyone", false, "allow an address that others can reach without authentication: everybody who connects can read everything you can")
	f.DurationVar(&a.grace, "authorization-grace", 5*time.Minute, "how long callers keep the last answers of the API server about them while it cannot be reached; 0: not at all")
	f.IntVar(&a.limits.MaxRequests, "max-requests", 0, "concurrent requests (default 400)")
	f.IntVar(&a.limits.MaxWatches, "max-watches", 0, "open watches (default 10000)")
	f.IntVar(&a.limits.MaxRequestsPerCaller, "max-requests-per-caller", 0, "concurrent requests of one caller (default 100)")
	f.IntVar(&a.limits.MaxWatchesPerCaller, "max-watches-per-caller", 0, "open watches of one caller (default 1000)")
	g.needs("tls-cert-file", "tls-private-key-file")
	g.needs("tls-private-key-file", "tls-cert-file")
	g.exclusive(cmd, "the folder has a certificate of its own", "tls-cert-file", "tls-cert-dir")
	complete(cmd, "tls-cert-dir", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return nil, cobra.ShellCompDirectiveFilterDirs
	})
	complete(cmd, "authentication", cobra.FixedCompletions([]string{
		cobra.CompletionWithDesc(authenticateUpstream, "callers have the rights that they have at the API server"),
		cobra.CompletionWithDesc(authenticateNone, "everybody who can connect has your rights"),
	}, cobra.ShellCompDirectiveNoFileComp))
	for _, name := range []string{"client-ca-file", "tls-cert-file", "tls-private-key-file"} {
		complete(cmd, name, cobra.FixedCompletions([]string{"crt", "key", "pem"}, cobra.ShellCompDirectiveFilterFileExt))
	}
	complete(cmd, "write-kubeconfig", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return nil, cobra.ShellCompDirectiveDefault
	})
}

// check rejects invalid flags.
func (a *admission) check(g *globals) error {
	switch {
	case a.authentication != authenticateUpstream && a.authentication != authenticateNone:
		return fmt.Errorf("--authentication %s: choose upstream or none", a.authentication)
	case a.authentication == authenticateUpstream && g.demo:
		return errors.New("--authentication upstream: the demo cluster has no users")
	case a.authentication == authenticateUpstream && a.anyone:
		return errors.New("--insecure-serve-anyone makes no sense with --authentication upstream, which lets the server listen anywhere")
	case a.authentication == authenticateNone && a.clientCA != "":
		return errors.New("--client-ca-file is for --authentication upstream")
	case a.authentication == authenticateNone && a.certDir != "":
		return errors.New("--tls-cert-dir is for --authentication upstream: without it there is no self-made certificate")
	case a.users && (a.kubeconfig == "" || a.authentication == authenticateNone):
		return errors.New("--write-kubeconfig-users is for --write-kubeconfig with --authentication upstream: clients of other servers need no users")
	case a.grace < 0:
		return fmt.Errorf("--authorization-grace %s: give a duration such as 5m", a.grace)
	}
	if a.replacesInput(g) {
		return fmt.Errorf("--write-kubeconfig %s would replace your kubeconfig and its credentials: name another file", a.kubeconfig)
	}
	if a.external != "" {
		if err := a.checkExternal(); err != nil {
			return fmt.Errorf("--external-url %s: %w", a.external, err)
		}
	}
	for flag, n := range map[string]int{
		"max-requests": a.limits.MaxRequests, "max-watches": a.limits.MaxWatches,
		"max-requests-per-caller": a.limits.MaxRequestsPerCaller, "max-watches-per-caller": a.limits.MaxWatchesPerCaller,
	} {
		if n < 0 {
			return fmt.Errorf("--%s %d: give a number", flag, n)
		}
	}
	return nil
}

// options adds the flags to the options of the server for a listener. A server that
// authenticates callers uses TLS: tokens must not be sent in the clear, and client
// certificates need it.
func (a *admission) options(g *globals, addr net.Addr, o server.Options) (server.Options, error) {
	o.InsecureServeAnyone = a.anyone
	o.MaxRequests, o.MaxWatches = a.limits.MaxRequests, a.limits.MaxWatches
	o.MaxRequestsPerCaller, o.MaxWatchesPerCaller = a.limits.MaxRequestsPerCaller, a.limits.MaxWatchesPerCaller
	var err error
	if a.authentication == authenticateUpstream {
		grace := a.grace
		if grace == 0 {
			grace = -1
		}
		if o.Gate, err = access.NewGate(access.Options{ClientCAFile: a.clientCA, Grace: grace, Logger: g.log}); err != nil {
			return o, fmt.Errorf("--client-ca-file: %w", err)
		}
	}
	switch {
	case a.certFile != "":
		o.TLS, err = server.LoadTLS(a.certFile, a.keyFile, g.log)
	case o.Gate != nil:
		o.TLS, err = a.selfMade(g, addr)
	}
	if err == nil && a.kubeconfig != "" && a.external == "" && isUnspecified(addr) {
		err = fmt.Errorf("--write-kubeconfig: the server listens on all addresses of this machine: say with --external-url at which one clients reach it, such as %s", a.url(addr, o.TLS))
	}
	return o, err
}

// selfMade serves with a certificate by a self-made authority.
func (a *admission) selfMade(g *globals, addr net.Addr) (config *tls.Config, err error) {
	var authority *server.Authority
	if a.certDir == "" {
		authority, err = server.NewAuthority()
	} else if authority, err = server.OpenAuthority(a.certDir, g.log); err != nil {
		err = fmt.Errorf("--tls-cert-dir: %w", err)
	}
	if err != nil {
		return nil, err
	}
	a.authority = authority.PEM()
	hosts := server.HostsOf(addr)
	if u, err := url.Parse(a.external); err == nil {
		hosts = append(hosts, u.Hostname())
	}
	return authority.TLS(hosts)
}

// replacesInput reports whether the kubeconfig to write is one that clusters are read
// from.
func (a *admission) replacesInput(g *globals) bool {
	written, err := os.Stat(a.kubeconfig)
	if err != nil {
		return false
	}
	for _, file := range filepath.SplitList(cmp.Or(g.kubeconfig, os.Getenv(clientcmd.RecommendedConfigPathEnvVar), clientcmd.RecommendedHomeFile)) {
		if read, err := os.Stat(file); err == nil && os.SameFile(read, written) {
			return true
		}
	}
	return false
}

// checkExternal rejects an --external-url that clients cannot use.
func (a *admission) checkExternal() error {
	u, err := url.Parse(a.external)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil ||
		strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "":
		return errors.New("give a scheme, a host and a port, such as https://mirror.example.com:8443")
	case u.Scheme == "http" && a.authentication == authenticateUpstream:
		return errors.New("use https: tokens must not be sent in the clear")
	}
	return nil
}

// isUnspecified reports whether a listener has all addresses of this machine.
func isUnspecified(addr net.Addr) bool {
	tcp, ok := addr.(*net.TCPAddr)
	return ok && tcp.IP.IsUnspecified()
}

// url returns the server's address for clients.
func (a *admission) url(addr net.Addr, config *tls.Config) string {
	if a.external != "" {
		return strings.TrimRight(a.external, "/")
	}
	scheme, host := "http", addr.String()
	if config != nil {
		scheme = "https"
	}
	if isUnspecified(addr) {
		if name, err := os.Hostname(); err == nil {
			host = net.JoinHostPort(name, strconv.Itoa(addr.(*net.TCPAddr).Port))
		}
	}
	return scheme + "://" + host
}

// announce logs the server's address and writes the kubeconfig for it.
// clusters are those that are served now, if they do not come from the kubeconfig.
func (a *admission) announce(g *globals, addr net.Addr, config *tls.Config, clusters []string) error {
	base := a.url(addr, config)
	if a.kubeconfig != "" {
		clients, err := a.clients(g, base, clusters)
		if err != nil {
			return fmt.Errorf("--write-kubeconfig: %w", err)
		}
		if err := cluster.WriteKubeconfig(clients, a.kubeconfig); err != nil {
			return fmt.Errorf("--write-kubeconfig: %w", err)
		}
	}
	record := []any{"url", base}
	if a.authority != nil {
		// The SHA-256 of the authority that has signed the generated certificate.
		record = append(record, "certificate", "generated", "authority", server.Fingerprint(a.authority))
	}
	if a.authority != nil && a.certDir == "" && a.kubeconfig != "" {
		g.log.Warn("the kubeconfig is good until the server ends: --tls-cert-dir keeps its authority")
	}
	if g.streams.ErrTerminal {
		record = append(record, "hint", "GET / lists the routes; Ctrl-C ends it")
	}
	g.log.Info("serving", record...)
	return nil
}

// clients returns the kubeconfig for clients of the server.
func (a *admission) clients(g *globals, base string, clusters []string) (*api.Config, error) {
	if g.demo && len(clusters) == 0 {
		clusters = []string{"demo"}
	}
	if len(clusters) > 0 {
		out := api.NewConfig()
		for _, name := range clusters {
			url := base
			if len(clusters) > 1 {
				url += server.ClusterPath(name)
			}
			out.Clusters[name] = cluster.KubeconfigCluster(url, a.authority)
			out.Contexts[name] = &api.Context{Cluster: name}
		}
		out.CurrentContext = clusters[0]
		return out, nil
	}
	at := func(context string, only bool) string {
		if only {
			return base
		}
		return base + server.ClusterPath(context)
	}
	return cluster.RedirectKubeconfig(g.kubeconfig, g.contexts, at, a.authority, a.users)
}
