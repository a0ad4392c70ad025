package cluster

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// ErrNoKubeconfig is the error if there is no kubeconfig and the program does not
// run in a pod. The error that wraps it lists the files that were tried.
var ErrNoKubeconfig = errors.New("no kubeconfig found")

// InCluster is the name of the only context in a pod with a service account and no
// kubeconfig.
const InCluster = "in-cluster"

// Context is a context of a kubeconfig.
type Context struct {
	Name      string
	Cluster   string
	User      string
	Namespace string // empty if the kubeconfig has none
	Server    string
	Current   bool
}

// FromKubeconfig returns the cluster of a kubeconfig context. The cluster has the
// name of the context. An empty context means the current one. It does no network
// I/O.
//
// path is a file, or several in the form of KUBECONFIG, all of which must exist. If
// it is empty, FromKubeconfig uses the same files as kubectl: those of KUBECONFIG,
// or ~/.kube/config, or else the service account of the pod.
func FromKubeconfig(path, context string) (*Cluster, error) {
	k, err := loadKubeconfig(path)
	if err != nil {
		return nil, err
	}
	name, err := k.choose(context)
	if err != nil {
		return nil, err
	}
	return k.cluster(name, nil, nil)
}

// FromKubeconfigs is like [FromKubeconfig] for several contexts. It returns the
// cluster of each context once, in the given order. No contexts mean the current
// one. "*" in a name matches anything.
func FromKubeconfigs(path string, contexts []string) ([]*Cluster, error) {
	return FromKubeconfigsWith(path, contexts, nil, nil)
}

// FromKubeconfigsWith is like [FromKubeconfigs], but overrides replace settings of
// the kubeconfig, as kubectl's flags do; nil for none. Credentials in overrides
// replace all credentials of the kubeconfig's user. change, if not nil, is called
// with the configuration of each cluster before the cluster is made of it.
func FromKubeconfigsWith(path string, contexts []string, overrides *clientcmd.ConfigOverrides, change func(context string, cfg *rest.Config) error) ([]*Cluster, error) {
	k, err := loadKubeconfig(path)
	if err != nil {
		return nil, err
	}
	names, err := k.chooseAll(contexts, false)
	if err != nil {
		return nil, err
	}
	var out []*Cluster
	for _, name := range names {
		c, err := k.cluster(name, overrides, change)
		if err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	return out, nil
}

// Contexts returns the contexts of the kubeconfig for path (see [FromKubeconfig]),
// sorted by name.
func Contexts(path string) ([]Context, error) {
	k, err := loadKubeconfig(path)
	if err != nil {
		return nil, err
	}
	var out []Context
	for _, name := range k.names() {
		ctx := k.raw.Contexts[name]
		c := Context{Name: name, Cluster: ctx.Cluster, User: ctx.AuthInfo, Namespace: ctx.Namespace, Current: name == k.raw.CurrentContext}
		if server := k.raw.Clusters[ctx.Cluster]; server != nil {
			c.Server = server.Server
		}
		out = append(out, c)
	}
	return out, nil
}

// kubeconfig is the merged content of kubeconfig files. In a pod without any, it
// has a single context for the service account.
type kubeconfig struct {
	files     []string
	raw       *api.Config
	inCluster *rest.Config // set in a pod without kubeconfig
}

// kubeconfigFiles returns the files to read for path. named reports whether path
// names them.
func kubeconfigFiles(path string) (files []string, named bool) {
	if files = nonEmpty(filepath.SplitList(path)); len(files) > 0 {
		return files, true
	}
	if files = nonEmpty(filepath.SplitList(os.Getenv(clientcmd.RecommendedConfigPathEnvVar))); len(files) > 0 {
		return files, false
	}
	return []string{clientcmd.RecommendedHomeFile}, false
}

func nonEmpty(list []string) []string {
	return slices.DeleteFunc(list, func(s string) bool { return s == "" })
}

func loadKubeconfig(path string) (*kubeconfig, error) {
	files, named := kubeconfigFiles(path)
	k := &kubeconfig{files: files}
	var missing []string
	for _, f := range files {
		if _, err := os.Stat(f); errors.Is(err, os.ErrNotExist) {
			missing = append(missing, f)
		}
	}
	if named && len(missing) > 0 {
		return nil, fmt.Errorf("%w at %s", ErrNoKubeconfig, strings.Join(missing, ", "))
	}
	if len(missing) == len(files) {
		if os.Getenv(clientcmd.RecommendedConfigPathEnvVar) == "" {
			return k, k.loadServiceAccount()
		}
		return nil, fmt.Errorf("%w at %s, which KUBECONFIG names; correct it, or pass --kubeconfig",
			ErrNoKubeconfig, strings.Join(files, ", "))
	}
	raw, err := (&clientcmd.ClientConfigLoadingRules{Precedence: files}).Load()
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig: %w", err)
	}
	k.raw = raw
	if len(raw.Contexts) == 0 {
		return nil, fmt.Errorf("%s has no contexts", k.where())
	}
	return k, nil
}

// loadServiceAccount loads the service account of a pod without kubeconfig.
func (k *kubeconfig) loadServiceAccount() error {
	cfg, err := rest.InClusterConfig()
	if errors.Is(err, rest.ErrNotInCluster) {
		return fmt.Errorf("%w at %s, and this is not a pod with a service account; pass --kubeconfig, or --demo for the embedded cluster",
			ErrNoKubeconfig, strings.Join(k.files, ", "))
	}
	if err != nil {
		return fmt.Errorf("%w at %s, and the pod's service account cannot be used: %w", ErrNoKubeconfig, strings.Join(k.files, ", "), err)
	}
	namespace := os.Getenv("POD_NAMESPACE")
	if b, err := os.ReadFile("/var/run/secrets/kubernetes.io/serviceaccount/namespace"); err == nil && namespace == "" {
		namespace = strings.TrimSpace(string(b))
	}
	k.files, k.inCluster = nil, cfg
	k.raw = &api.Config{
		CurrentContext: InCluster,
		Contexts:       map[string]*api.Context{InCluster: {Cluster: InCluster, Namespace: namespace}},
		Clusters:       map[string]*api.Cluster{InCluster: {Server: cfg.Host}},
	}
	return nil
}

// where names the files, for messages.
func (k *kubeconfig) where() string {
	if k.inCluster != nil {
		return "the pod's service account"
	}
	return "kubeconfig " + strings.Join(k.files, ", ")
}

func (k *kubeconfig) names() []string { return slices.Sorted(maps.Keys(k.raw.Contexts)) }

// choose returns the name of the given context, or of the current one, if it
// exists.
func (k *kubeconfig) choose(context string) (string, error) {
	has := "it has " + strings.Join(k.names(), ", ")
	switch {
	case context == "" && k.raw.CurrentContext == "":
		return "", fmt.Errorf("%s has no current context; pass --context (%s)", k.where(), has)
	case context == "" && k.raw.Contexts[k.raw.CurrentContext] == nil:
		return "", fmt.Errorf("%s: its current context %q does not exist; pass --context (%s)", k.where(), k.raw.CurrentContext, has)
	case context == "":
		return k.raw.CurrentContext, nil
	case k.raw.Contexts[context] == nil:
		return "", fmt.Errorf("%s has no context %q (%s)", k.where(), context, has)
	}
	return context, nil
}

// chooseAll returns the names of the wanted contexts, each once. If skipMissing is
// set, contexts that do not exist are skipped; otherwise they are an error.
func (k *kubeconfig) chooseAll(wanted []string, skipMissing bool) ([]string, error) {
	if len(wanted) == 0 {
		name, err := k.choose("")
		return []string{name}, err
	}
	var out []string
	add := func(name string) {
		if !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	for _, want := range wanted {
		if strings.Contains(want, "*") && k.raw.Contexts[want] == nil {
			for _, name := range k.names() {
				if NameMatches(want, name) {
					add(name)
				}
			}
		} else if _, err := k.choose(want); err == nil {
			add(want)
		} else if !skipMissing {
			return nil, err
		}
	}
	if len(out) == 0 && !skipMissing {
		return nil, fmt.Errorf("%s has no context like %s (it has %s)", k.where(), strings.Join(wanted, ", "), strings.Join(k.names(), ", "))
	}
	return out, nil
}

// NameMatches reports whether a name matches a pattern, in which each * stands for
// any characters.
func NameMatches(pattern, name string) bool {
	return regexp.MustCompile("(?s)^" + strings.ReplaceAll(regexp.QuoteMeta(pattern), `\*`, ".*") + "$").MatchString(name)
}

func (k *kubeconfig) cluster(name string, overrides *clientcmd.ConfigOverrides, change func(string, *rest.Config) error) (*Cluster, error) {
	cfg, err := k.restConfig(name, overrides)
	if err != nil {
		return nil, err
	}
	if change != nil {
		if err := change(name, cfg); err != nil {
			return nil, err
		}
	}
	c, err := New(name, cfg)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", k.where(), err)
	}
	c.namespace = cmp.Or(k.raw.Contexts[name].Namespace, "default")
	return c, nil
}

func (k *kubeconfig) restConfig(name string, overrides *clientcmd.ConfigOverrides) (*rest.Config, error) {
	if overrides == nil {
		if k.inCluster != nil {
			return rest.CopyConfig(k.inCluster), nil
		}
		overrides = &clientcmd.ConfigOverrides{}
	}
	// A copy, because clientcmd writes the cluster's settings into the user's exec
	// plugin, which contexts may share.
	raw := k.raw.DeepCopy()
	ctx := raw.Contexts[name]
	if k.inCluster != nil {
		raw.Clusters[ctx.Cluster].CertificateAuthority = k.inCluster.CAFile
		ctx.AuthInfo = InCluster
		raw.AuthInfos = map[string]*api.AuthInfo{InCluster: {TokenFile: k.inCluster.BearerTokenFile}}
	}
	// clientcmd treats a missing cluster or user like an empty one.
	if raw.Clusters[ctx.Cluster] == nil {
		return nil, fmt.Errorf("%s: context %q names the cluster %q, which does not exist", k.where(), name, ctx.Cluster)
	}
	if ctx.AuthInfo != "" && raw.AuthInfos[ctx.AuthInfo] == nil {
		return nil, fmt.Errorf("%s: context %q names the user %q, which does not exist", k.where(), name, ctx.AuthInfo)
	}
	// clientcmd would send both. A server looks at a certificate first, so a token
	// that was given instead would have no effect.
	if a := overrides.AuthInfo; ctx.AuthInfo != "" && (a.Token != "" || a.TokenFile != "" || a.ClientCertificate != "") {
		raw.AuthInfos[ctx.AuthInfo] = api.NewAuthInfo()
	}
	// The loading rules let legacy auth providers save refreshed tokens.
	cfg, err := clientcmd.NewNonInteractiveClientConfig(*raw, name, overrides,
		&clientcmd.ClientConfigLoadingRules{Precedence: k.files}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("%s, context %q: %w", k.where(), name, err)
	}
	return cfg, nil
}
