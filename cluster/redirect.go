package cluster

import (
	"fmt"
	"os"
	"strings"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// RedirectKubeconfig returns a kubeconfig with the contexts that [FromKubeconfigs]
// selects for the same arguments, with the same names, namespaces and users, but
// other servers. url returns the URL of the server of a context; only is set if
// the context is the only one. ca is the CA certificate of the servers in PEM, nil
// for one that clients trust already.
//
// Files that users refer to are embedded, so the result is as secret as the
// kubeconfig. It has no user for a pod's service account, which is nothing but a
// token, and no users at all if withUsers is false, for servers that do not
// authenticate.
func RedirectKubeconfig(path string, contexts []string, url func(context string, only bool) string, ca []byte, withUsers bool) (*api.Config, error) {
	k, err := loadKubeconfig(path)
	if err != nil {
		return nil, err
	}
	names, err := k.chooseAll(contexts, false)
	if err != nil {
		return nil, err
	}
	out := api.NewConfig()
	for _, name := range names {
		from := k.raw.Contexts[name]
		to := &api.Context{Cluster: name, Namespace: from.Namespace}
		if user := k.raw.AuthInfos[from.AuthInfo]; user != nil && withUsers {
			to.AuthInfo = from.AuthInfo
			out.AuthInfos[from.AuthInfo] = user.DeepCopy()
		}
		out.Clusters[name] = KubeconfigCluster(url(name, len(names) == 1), ca)
		out.Contexts[name] = to
	}
	out.CurrentContext = names[0]
	if out.Contexts[k.raw.CurrentContext] != nil {
		out.CurrentContext = k.raw.CurrentContext
	}
	if err := api.FlattenConfig(out); err != nil {
		return nil, fmt.Errorf("%s: embed the files of its users: %w", k.where(), err)
	}
	return out, nil
}

// KubeconfigCluster returns the entry of a kubeconfig for a server. ca is as for
// [RedirectKubeconfig].
func KubeconfigCluster(url string, ca []byte) *api.Cluster {
	// For plain HTTP, the official JavaScript client requires
	// InsecureSkipTLSVerify, although there is no certificate to verify.
	return &api.Cluster{Server: url, CertificateAuthorityData: ca, InsecureSkipTLSVerify: strings.HasPrefix(url, "http://")}
}

// WriteKubeconfig writes a kubeconfig to a file that only its owner may read.
func WriteKubeconfig(config *api.Config, path string) error {
	var err error
	if info, missing := os.Stat(path); missing == nil && info.Mode().IsRegular() {
		err = os.Chmod(path, 0o600) // writing keeps the mode of a file that exists
	}
	if err == nil {
		err = clientcmd.WriteToFile(*config, path)
	}
	if err != nil {
		return fmt.Errorf("write a kubeconfig to %s: %w", path, err)
	}
	return nil
}
