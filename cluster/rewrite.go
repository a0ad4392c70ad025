package cluster

import (
	"fmt"
	"strings"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// Elsewhere makes a kubeconfig of the contexts that [FromKubeconfigs] chooses
// for the same arguments, with the same names, namespaces and users, whose
// clusters are to be found elsewhere: at says where the server of each, or of the
// only one, is, and authority, in PEM, is who has signed its certificate; none means one that
// clients know.
//
// What users are is embedded, so the result is as secret as the kubeconfig is. A
// pod's service account is left out, it has no other name than its token; and so
// are all users if withUsers is false, for servers that ask nobody who they are.
func Elsewhere(path string, contexts []string, at func(context string, only bool) string, authority []byte, withUsers bool) (*api.Config, error) {
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
		out.Clusters[name] = At(at(name, len(names) == 1), authority)
		out.Contexts[name] = to
	}
	out.CurrentContext = names[0]
	if out.Contexts[k.raw.CurrentContext] != nil {
		out.CurrentContext = k.raw.CurrentContext
	}
	if err := api.FlattenConfig(out); err != nil {
		return nil, fmt.Errorf("%s: embed what its users consist of: %w", k.where(), err)
	}
	return out, nil
}

// At is the cluster of a kubeconfig that is at a URL, authority as for [Elsewhere].
func At(url string, authority []byte) *api.Cluster {
	// Over plain HTTP there is no certificate to be verified, and the official
	// JavaScript client wants to see that said.
	return &api.Cluster{Server: url, CertificateAuthorityData: authority, InsecureSkipTLSVerify: strings.HasPrefix(url, "http://")}
}

// WriteKubeconfig writes a kubeconfig that nobody but its owner may read.
func WriteKubeconfig(config *api.Config, path string) error {
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		return fmt.Errorf("write a kubeconfig to %s: %w", path, err)
	}
	return nil
}
