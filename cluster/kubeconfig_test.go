package cluster_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/tidings-io/tidings/cluster"
)

// kubeconfig is the text of a file with a context, cluster and user of each name.
func kubeconfig(current string, names ...string) string {
	var contexts, clusters, users strings.Builder
	for _, n := range names {
		contexts.WriteString("- name: " + n + "\n  context: {cluster: " + n + ", user: " + n + ", namespace: ns-" + n + "}\n")
		clusters.WriteString("- name: " + n + "\n  cluster: {server: \"https://" + strings.NewReplacer(":", "-", "/", "-").Replace(n) + ".example:6443\"}\n")
		users.WriteString("- name: " + n + "\n  user: {token: secret-" + n + "}\n")
	}
	return "apiVersion: v1\nkind: Config\ncurrent-context: " + current + "\ncontexts:\n" + contexts.String() +
		"clusters:\n" + clusters.String() + "users:\n" + users.String()
}

func write(t testing.TB, path, text string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// nowhere takes the surroundings' kubeconfig and service account away.
func nowhere(t *testing.T) {
	t.Setenv("KUBECONFIG", "")
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
}

func TestFromKubeconfig(t *testing.T) {
	nowhere(t)
	file := write(t, filepath.Join(t.TempDir(), "config"), kubeconfig("b", "a", "b"))
	for context, want := range map[string]string{"": "b", "a": "a", "b": "b"} {
		c, err := cluster.FromKubeconfig(file, context)
		if err != nil {
			t.Fatal(err)
		}
		if c.Name() != want || c.DefaultNamespace() != "ns-"+want || c.BaseURL().Host != want+".example:6443" || c.Config().BearerToken != "secret-"+want {
			t.Errorf("context %q: %s, %s, %s", context, c.Name(), c.DefaultNamespace(), c.BaseURL())
		}
	}
}

func TestFromKubeconfigs(t *testing.T) {
	nowhere(t)
	file := write(t, filepath.Join(t.TempDir(), "config"), kubeconfig("b", "a", "b", "arn:eks/x", "arn:eks/y"))
	for contexts, want := range map[string]string{
		"": "b", "b a b": "b a", "*": "a arn:eks/x arn:eks/y b", "arn:*/y *": "arn:eks/y a arn:eks/x b", "b *y": "b arn:eks/y",
	} {
		clusters, err := cluster.FromKubeconfigs(file, strings.Fields(contexts))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, c := range clusters {
			got = append(got, c.Name())
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q: %s, want %s", contexts, got, want)
		}
	}
	for contexts, says := range map[string]string{"a z": `no context "z"`, "z*": "no context like z*"} {
		if _, err := cluster.FromKubeconfigs(file, strings.Fields(contexts)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v", contexts, err)
		}
	}
}

func TestKubeconfigEnvironmentIsMerged(t *testing.T) {
	nowhere(t)
	dir := t.TempDir()
	one := write(t, filepath.Join(dir, "one"), kubeconfig("a", "a"))
	two := write(t, filepath.Join(dir, "two"), kubeconfig("b", "b"))
	t.Setenv("KUBECONFIG", strings.Join([]string{one, filepath.Join(dir, "missing"), two}, string(filepath.ListSeparator)))
	contexts, err := cluster.Contexts("")
	if err != nil {
		t.Fatal(err)
	}
	if len(contexts) != 2 || contexts[0] != (cluster.Context{Name: "a", Cluster: "a", User: "a", Namespace: "ns-a", Server: "https://a.example:6443", Current: true}) || contexts[1].Current {
		t.Errorf("%+v", contexts)
	}
}

func TestContextsMayShareAnExecUser(t *testing.T) {
	nowhere(t)
	file := write(t, filepath.Join(t.TempDir(), "config"), `
apiVersion: v1
kind: Config
contexts:
- {name: a, context: {cluster: a, user: u}}
- {name: b, context: {cluster: b, user: u}}
clusters:
- {name: a, cluster: {server: "https://a", extensions: [{name: client.authentication.k8s.io/exec, extension: {audience: a}}]}}
- {name: b, cluster: {server: "https://b", extensions: [{name: client.authentication.k8s.io/exec, extension: {audience: b}}]}}
users:
- {name: u, user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: login, interactiveMode: Never, provideClusterInfo: true}}}
`)
	a, err := cluster.FromKubeconfig(file, "a")
	if err != nil {
		t.Fatal(err)
	}
	b, err := cluster.FromKubeconfig(file, "b")
	if err != nil {
		t.Fatal(err)
	}
	if a.Config().ExecProvider.Config == nil || a.Config().ExecProvider == b.Config().ExecProvider {
		t.Errorf("%+v", a.Config().ExecProvider)
	}
}

func TestKubeconfigErrorsSayWhatToDo(t *testing.T) {
	nowhere(t)
	dir := t.TempDir()
	t.Setenv("HOME", dir)
	good := write(t, filepath.Join(dir, "good"), kubeconfig("a", "a", "b"))
	for name, test := range map[string]struct {
		path, env, context, text string
		says                     []string
		none                     bool
	}{
		"no such file":      {path: filepath.Join(dir, "gone"), says: []string{"gone"}, none: true},
		"KUBECONFIG amiss":  {env: filepath.Join(dir, "gone"), says: []string{"gone", "KUBECONFIG", "--kubeconfig"}, none: true},
		"unknown context":   {path: good, context: "c", says: []string{good, `no context "c"`, "it has a, b"}},
		"no current":        {text: kubeconfig(`""`, "a", "b"), says: []string{"no current context", "--context", "a, b"}},
		"current is gone":   {text: kubeconfig("z", "a"), says: []string{`current context "z"`, "--context", "it has a"}},
		"empty":             {text: " ", says: []string{"has no contexts"}},
		"not YAML":          {text: "{", says: []string{"read the kubeconfig"}},
		"no cluster":        {text: "apiVersion: v1\nkind: Config\ncurrent-context: a\ncontexts: [{name: a, context: {cluster: x}}]", says: []string{`context "a"`, `"x"`}},
		"no user":           {text: strings.Replace(kubeconfig("a", "a"), "user: a", "user: z", 1), says: []string{`context "a"`, `user "z"`}},
		"certificate file":  {text: strings.ReplaceAll(kubeconfig("a", "a"), "server:", "certificate-authority: nowhere.crt, server:"), says: []string{`context "a"`, "nowhere.crt"}},
		"unusable address":  {text: strings.ReplaceAll(kubeconfig("a", "a"), "https://", "https://%%"), says: []string{`"a"`, "%%"}},
		"null in the lists": {text: "contexts: [null]\nclusters: [null]\nusers: [null]\ncurrent-context: a", says: []string{"kubeconfig"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("KUBECONFIG", test.env)
			path := test.path
			if test.text != "" {
				path = write(t, filepath.Join(t.TempDir(), "config"), test.text)
			}
			_, err := cluster.FromKubeconfig(path, test.context)
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range test.says {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%v\nlacks %q", err, want)
				}
			}
			if errors.Is(err, cluster.ErrNoKubeconfig) != test.none {
				t.Errorf("%v: errors.Is(err, ErrNoKubeconfig) is %v", err, !test.none)
			}
		})
	}
}

func FuzzKubeconfig(f *testing.F) {
	f.Add(kubeconfig("a", "a", "b"), "")
	f.Add("contexts: [null]", "a")
	f.Add("{", "a")
	f.Fuzz(func(t *testing.T, text, context string) {
		nowhere(t)
		path := write(t, filepath.Join(t.TempDir(), "config"), text)
		contexts, err := cluster.Contexts(path)
		c, cerr := cluster.FromKubeconfig(path, context)
		if err != nil && cerr == nil {
			t.Fatalf("a cluster %q from a file that cannot be read: %v", c.Name(), err)
		}
		if err == nil && len(contexts) == 0 {
			t.Fatal("no contexts and no error")
		}
	})
}

func TestOverridesOfAKubeconfig(t *testing.T) {
	nowhere(t)
	file := write(t, filepath.Join(t.TempDir(), "config"), strings.ReplaceAll(kubeconfig("a", "a", "b"), "token: secret-b", "exec: {command: x, apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never}, username: u, password: p"))
	overrides := &clientcmd.ConfigOverrides{
		AuthInfo:    api.AuthInfo{Token: "mine", Impersonate: "other"},
		ClusterInfo: api.Cluster{TLSServerName: "expected"},
	}
	var changed []string
	clusters, err := cluster.FromKubeconfigsWith(file, []string{"*"}, overrides, func(context string, cfg *rest.Config) error {
		changed = append(changed, context)
		cfg.UserAgent = "changed"
		return nil
	})
	if err != nil || strings.Join(changed, " ") != "a b" {
		t.Fatal(err, changed)
	}
	for _, c := range clusters {
		cfg := c.Config()
		if cfg.BearerToken != "mine" || cfg.Impersonate.UserName != "other" || cfg.ServerName != "expected" || cfg.UserAgent != "changed" || c.BaseURL().Host != c.Name()+".example:6443" {
			t.Errorf("%s: %v", c.Name(), cfg)
		}
		if cfg.ExecProvider != nil || cfg.Username != "" || cfg.Password != "" {
			t.Errorf("%s: other credentials are kept beside the token", c.Name())
		}
	}
	refused := errors.New("no")
	if _, err := cluster.FromKubeconfigsWith(file, nil, nil, func(string, *rest.Config) error { return refused }); !errors.Is(err, refused) {
		t.Error(err)
	}
}
