package cluster_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/tidings-io/tidings/cluster"
)

func TestRedirectKubeconfig(t *testing.T) {
	dir := t.TempDir()
	from := api.NewConfig()
	for _, name := range []string{"a", "b", "c"} {
		from.Clusters[name] = &api.Cluster{Server: "https://" + name, InsecureSkipTLSVerify: true}
		from.AuthInfos["user-"+name] = &api.AuthInfo{Token: "token-" + name}
		from.Contexts[name] = &api.Context{Cluster: name, AuthInfo: "user-" + name, Namespace: "ns-" + name}
	}
	from.AuthInfos["user-b"] = &api.AuthInfo{ClientCertificate: "b.crt", ClientKey: "b.key"}
	from.CurrentContext = "b"
	for _, f := range []string{"b.crt", "b.key"} {
		if err := os.WriteFile(filepath.Join(dir, f), []byte(f), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(dir, "kubeconfig")
	if err := clientcmd.WriteToFile(*from, path); err != nil {
		t.Fatal(err)
	}
	at := func(context string, only bool) string {
		if only {
			return "https://mirror"
		}
		return "https://mirror/" + context
	}
	several, err := cluster.RedirectKubeconfig(path, []string{"a", "b"}, at, []byte("ca"), true)
	if err != nil {
		t.Fatal(err)
	}
	if b := several.AuthInfos["user-b"]; len(several.Contexts) != 2 || several.CurrentContext != "b" || string(b.ClientCertificateData) != "b.crt" || b.ClientCertificate != "" || string(b.ClientKeyData) != "b.key" {
		t.Errorf("%+v", several)
	}
	if c := several.Clusters["a"]; c.Server != "https://mirror/a" || string(c.CertificateAuthorityData) != "ca" || c.InsecureSkipTLSVerify || several.Contexts["a"].Namespace != "ns-a" {
		t.Errorf("%+v", c)
	}
	written := filepath.Join(dir, "written")
	if err := os.WriteFile(written, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := cluster.WriteKubeconfig(several, written); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(written); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("credentials in a file that others may read: %v %v", info.Mode(), err)
	}
	again, err := clientcmd.LoadFromFile(written)
	if err != nil || again.AuthInfos["user-a"].Token != "token-a" {
		t.Errorf("%v %+v", err, again)
	}

	one, err := cluster.RedirectKubeconfig(path, nil, at, nil, false)
	if err != nil {
		t.Fatal(err)
	}
	if len(one.AuthInfos) != 0 || one.Clusters["b"].Server != "https://mirror" || one.Contexts["b"].AuthInfo != "" {
		t.Errorf("%+v", one)
	}
	if secure := cluster.KubeconfigCluster("https://mirror", nil); secure.InsecureSkipTLSVerify {
		t.Error("certificates are not verified")
	}
	if plain := cluster.KubeconfigCluster("http://127.0.0.1:8888", nil); !plain.InsecureSkipTLSVerify {
		t.Error("the JavaScript client refuses plain HTTP, unless it is told that nothing is verified")
	}
	if _, err := cluster.RedirectKubeconfig(path, []string{"z"}, at, nil, true); err == nil || !strings.Contains(err.Error(), `"z"`) {
		t.Errorf("a context that is not there: %v", err)
	}
	if err := cluster.WriteKubeconfig(one, filepath.Join(written, "below")); err == nil {
		t.Error("a file in a file")
	}
}
