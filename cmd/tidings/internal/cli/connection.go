package cli

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/tidings-io/tidings/cluster"
	"github.com/tidings-io/tidings/cmd/tidings/internal/server"
)

// connection holds the flags that say how to connect to a cluster or, with --server,
// to a mirror. They are kubectl's.
type connection struct {
	server    string // a mirror to read from, "" for the clusters themselves
	overrides clientcmd.ConfigOverrides
	plainHTTP bool // credentials may go over plain HTTP to another machine
	timeout   time.Duration
}

// serverFlag adds --server, which makes the command read from a mirror, and the flags
// that say how to connect.
func (g *globals) serverFlag(cmd *cobra.Command) {
	c, f := &g.conn, cmd.Flags()
	f.StringVar(&c.server, "server", "", "`URL` of a \"tidings serve\" to ask instead of the cluster; --context then names clusters of it")
	complete(cmd, "server", cobra.FixedCompletions([]string{"http://" + server.DefaultAddr}, cobra.ShellCompDirectiveNoFileComp))
	flag := func(name, usage string) clientcmd.FlagInfo {
		return clientcmd.FlagInfo{LongName: name, Description: usage}
	}
	clientcmd.BindOverrideFlags(&c.overrides, f, clientcmd.ConfigOverrideFlags{
		AuthOverrideFlags: clientcmd.AuthOverrideFlags{
			Token:             flag(clientcmd.FlagBearerToken, "bearer `token` to authenticate with; other users of this machine can see it, so prefer --token-file"),
			ClientCertificate: flag(clientcmd.FlagCertFile, "PEM `file` of a client certificate to authenticate with"),
			ClientKey:         flag(clientcmd.FlagKeyFile, "PEM `file` of its key"),
			Impersonate:       flag(clientcmd.FlagImpersonate, "`user` to impersonate"),
			ImpersonateGroups: flag(clientcmd.FlagImpersonateGroup, "`group` to impersonate; repeat it for several"),
			ImpersonateUID:    flag(clientcmd.FlagImpersonateUID, "`UID` to impersonate"),
		},
		ClusterOverrideFlags: clientcmd.ClusterOverrideFlags{
			CertificateAuthority:  flag(clientcmd.FlagCAFile, "PEM `file` of the authorities whose server certificates are trusted"),
			InsecureSkipTLSVerify: flag(clientcmd.FlagInsecure, "accept any server certificate: somebody else may answer, and get the credentials"),
			TLSServerName:         flag(clientcmd.FlagTLSServerName, "`name` to expect in the server's certificate (default: that of the URL)"),
		},
		Timeout: clientcmd.FlagInfo{LongName: clientcmd.FlagTimeout, Default: "0", Description: "`time` to wait for the answer to one request, as in 30s; 0: no limit"},
	})
	f.StringVar(&c.overrides.AuthInfo.TokenFile, "token-file", "", "`file` of a bearer token to authenticate with; read again when it changes")
	f.BoolVar(&c.plainHTTP, "insecure-plain-http", false, "send a token over plain HTTP to another machine: everybody on the way can read it")
	g.exclusive(cmd, "the server is not one of a kubeconfig; for one with authentication, use the file that its --write-kubeconfig wrote as --kubeconfig alone, or --token-file", "server", "kubeconfig")
	g.exclusive(cmd, "the demo cluster is in this process", "server", "demo")
	g.exclusive(cmd, "both are a token", clientcmd.FlagBearerToken, "token-file")
	g.exclusive(cmd, "an authority is for certificates that are checked", clientcmd.FlagCAFile, clientcmd.FlagInsecure)
	g.needs(clientcmd.FlagCertFile, clientcmd.FlagKeyFile)
	g.needs(clientcmd.FlagKeyFile, clientcmd.FlagCertFile)
	g.needs(clientcmd.FlagImpersonateGroup, clientcmd.FlagImpersonate)
	g.needs(clientcmd.FlagImpersonateUID, clientcmd.FlagImpersonate)
	for _, name := range []string{"token-file", clientcmd.FlagCertFile, clientcmd.FlagKeyFile, clientcmd.FlagCAFile} {
		complete(cmd, name, func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveDefault
		})
	}
}

// check rejects invalid flags.
func (c *connection) check() (err error) {
	if c.timeout, err = clientcmd.ParseTimeout(cmp.Or(c.overrides.Timeout, "0")); err != nil || c.timeout < 0 {
		return fmt.Errorf("--%s %s: give a time such as 30s", clientcmd.FlagTimeout, c.overrides.Timeout)
	}
	if file := c.overrides.AuthInfo.TokenFile; file != "" {
		token, err := os.ReadFile(file)
		if err == nil && strings.TrimSpace(string(token)) == "" {
			err = fmt.Errorf("%s is empty", file)
		}
		if err != nil {
			return fmt.Errorf("--token-file: %w", err)
		}
	}
	for _, f := range []struct{ flag, file string }{
		{clientcmd.FlagCAFile, c.overrides.ClusterInfo.CertificateAuthority},
		{clientcmd.FlagCertFile, c.overrides.AuthInfo.ClientCertificate},
		{clientcmd.FlagKeyFile, c.overrides.AuthInfo.ClientKey},
	} {
		if f.file == "" {
			continue
		}
		if _, err := os.ReadFile(f.file); err != nil {
			return fmt.Errorf("--%s: %w", f.flag, err)
		}
	}
	return nil
}

// tokenFlag returns the flag that a token was given with, or "".
func (c *connection) tokenFlag() string {
	switch {
	case c.overrides.AuthInfo.Token != "":
		return "--" + clientcmd.FlagBearerToken
	case c.overrides.AuthInfo.TokenFile != "":
		return "--token-file"
	}
	return ""
}

// asFlag returns --as if it is in use, or "".
func (c *connection) asFlag() string {
	if c.overrides.AuthInfo.Impersonate == "" {
		return ""
	}
	return "--" + clientcmd.FlagImpersonate
}

// tlsFlag returns a flag in use that works with TLS only, or "".
func (c *connection) tlsFlag() string {
	a, o := c.overrides.AuthInfo, c.overrides.ClusterInfo
	switch {
	case a.ClientCertificate != "":
		return "--" + clientcmd.FlagCertFile
	case o.CertificateAuthority != "":
		return "--" + clientcmd.FlagCAFile
	case o.InsecureSkipTLSVerify:
		return "--" + clientcmd.FlagInsecure
	case o.TLSServerName != "":
		return "--" + clientcmd.FlagTLSServerName
	}
	return ""
}

// finish completes the configuration that clientcmd has made of the flags, and
// rejects one that would not do what they say. clientcmd ignores credentials for
// plain HTTP.
func (c *connection) finish(cfg *rest.Config) error {
	u, err := url.Parse(cfg.Host)
	if err != nil || u.Scheme != "http" {
		return nil // cluster.New rejects what is no URL
	}
	if flag := c.tlsFlag(); flag != "" {
		return fmt.Errorf("%s is for https:// servers, and this one is %s", flag, u.Redacted())
	}
	flag := c.tokenFlag()
	if flag != "" && !c.plainHTTP && !loopback(u.Hostname()) {
		return fmt.Errorf("%s: not sent to %s, because everybody on the way could read it; use https://%s, or add --insecure-plain-http if you trust the network", flag, u.Redacted(), u.Host)
	}
	cfg.BearerToken, cfg.BearerTokenFile = c.overrides.AuthInfo.Token, c.overrides.AuthInfo.TokenFile
	return nil
}

// loopback reports whether a host is this machine for certain.
func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// address returns the URL that --server names. Without a scheme it is https if a flag
// needs that.
func (c *connection) address() (*url.URL, error) {
	address := c.server
	if !strings.Contains(address, "://") {
		scheme := "http://"
		if c.tokenFlag() != "" || c.tlsFlag() != "" {
			scheme = "https://"
		}
		address = scheme + address
	}
	base, err := url.Parse(address)
	if err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https" {
		return nil, errors.New("--server: give a URL such as http://127.0.0.1:8888")
	}
	if base.User != nil {
		return nil, errors.New("--server: credentials do not belong into the URL; use --token-file, --token or --client-certificate")
	}
	return base, nil
}

// mirrorConfig returns the configuration for a URL of a mirror. No kubeconfig is used,
// so only the credentials that flags name are sent.
func (c *connection) mirrorConfig(base *url.URL) (*rest.Config, error) {
	overrides := c.overrides
	overrides.ClusterInfo.Server = base.String()
	cfg, err := clientcmd.NewDefaultClientConfig(*api.NewConfig(), &overrides).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("--server: %w", err)
	}
	return cfg, c.finish(cfg)
}

// kubeconfigClusters returns the clusters of the kubeconfig.
func (g *globals) kubeconfigClusters() ([]*cluster.Cluster, error) {
	return cluster.FromKubeconfigsWith(g.kubeconfig, g.contexts, &g.conn.overrides, func(context string, cfg *rest.Config) error {
		if err := g.conn.finish(cfg); err != nil {
			return fmt.Errorf("context %q: %w", context, err)
		}
		g.watchOver(cfg, "set the server of the context "+context+" in the kubeconfig to ")
		return nil
	})
}

// watchOver makes the requests of a configuration report silence and end in time.
// correct is what to do about a wrong URL, before the right one.
func (g *globals) watchOver(cfg *rest.Config, correct string) {
	l := &link{notice: g.screen.notice, server: cfg.Host, correct: correct, ca: g.conn.overrides.ClusterInfo.CertificateAuthority, timeout: g.conn.timeout}
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return watched{l, next} })
	if base, err := url.Parse(cfg.Host); err == nil && g.ofThePast {
		cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return pastDiscovery{next, strings.TrimSuffix(base.EscapedPath(), "/")}
		})
	}
}
