package matrix

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/rest"

	"github.com/tidings-io/tidings/cmd/tidings/test/reliability/faultproxy"
	"github.com/tidings-io/tidings/informer"
)

const behind = "the cluster has been restored from a backup"

// clusterRows are faults of the API server and of what is behind it: real ones.
var clusterRows = []*row{
	{Fault: "API server killed and started again", While: watching, Own: "restarts", Forgets: true, Error: broken, With: func(r *rig) injected {
		r.must(r.cluster.KillAPIServer(r.ctx))
		return injected{heal: func() { r.must(r.cluster.StartAPIServer(r.ctx)) }}
	}},
	{Fault: "API server stopped and started again", While: watching, Own: "restarts", Forgets: true, Error: "upstream connect error|apiserver is shutting down", Shows: "apiserver is shutting down` or `upstream connect error", With: func(r *rig) injected {
		r.must(r.cluster.StopAPIServer(r.ctx))
		return injected{heal: func() { r.must(r.cluster.StartAPIServer(r.ctx)) }}
	}},
	{Fault: "API servers replaced one after the other", While: watching, Own: "restarts", Forgets: true, With: func(r *rig) injected {
		other, stop, err := r.cluster.AddAPIServer(r.ctx)
		r.must(err)
		r.retarget(other)
		r.must(r.cluster.StopAPIServer(r.ctx))
		r.must(r.cluster.StartAPIServer(r.ctx))
		r.retarget(r.cluster.URL())
		r.must(stop(r.ctx))
		return injected{}
	}},
	{Fault: "etcd compacted while there was no connection", While: watching, Own: "etcd", Error: "connection refused", With: func(r *rig) injected {
		for _, l := range r.lines {
			l.settle()
		}
		for _, l := range r.lines {
			refuse(l)
		}
		r.must(r.cluster.ForgetHistory(r.ctx))
		return injected{heal: func() {
			for _, l := range r.lines {
				r.must(l.wire.Accept())
			}
		}}
	}},
	{Fault: "etcd restored to an older revision", While: watching, Own: "etcd", Restores: true, Error: behind, With: func(r *rig) injected {
		restore, err := r.cluster.SaveEtcd()
		r.must(err)
		r.churn.halt(true)
		var version string
		for range 200 { // more than an API server writes that starts
			version = r.churn.mustWrite("o1")
		}
		r.await("everybody is told what will not have been", func(p *replay) bool { return number(p.at("o1")) >= number(version) })
		r.must(restore(r.ctx))
		r.churn.forget()
		noticed := func() bool {
			return !slices.ContainsFunc(r.lines, func(l *line) bool { return !strings.Contains(fmt.Sprint(l.status().LastError), behind) })
		}
		return injected{hit: noticed, heal: func() { r.churn.halt(false) }}
	}},
	{Fault: "a bookmark of a version that is yet to come, then a cut", While: watching, Error: broken, Restores: true, Inject: func(l *line) injected {
		i := next("watch", faultproxy.Frames(func(s *faultproxy.Stream, n int, f *faultproxy.Frame) {
			s.Send(f)
			if n == 2 {
				s.Bookmark("900000000")
				s.Abort()
			}
		}))(l)
		return i
	}},
	{Fault: "definition deleted and made again", While: watching, Custom: true, Waits: informer.Gone, Reads: "404 UnknownResource", Error: "the server could not find the requested resource|serves no resource", Shows: "the server could not find the requested resource` or `serves no resource", Busy: 20,
		Perhaps: "informer_errors_total", // discovery may notice first: the informer ends, and its counters with it
		SetUp:   func(r *rig) { r.define(r.kind) },
		With: func(r *rig) injected {
			r.churn.halt(true)
			r.undefine(r.kind)
			return injected{heal: func() {
				r.define(r.kind)
				r.churn.forget()
				r.churn.halt(false)
			}}
		}},
	{Fault: "right taken away and given back", While: listing, Waits: informer.Refused, Reads: "403 Forbidden", Error: `User "[a-z0-9-]+" cannot list resource "configmaps"|is forbidden`, SetUp: (*rig).limited, With: (*rig).withoutRights},
	{Fault: "right taken away and given back", While: watching, Waits: informer.Denied, Error: `cannot watch resource "configmaps"|is forbidden`, SetUp: (*rig).limited, With: (*rig).withoutRights},
	{Fault: "token expired, then replaced in its file", While: watching, Waits: informer.Denied, Error: "Unauthorized", SetUp: (*rig).tokens, With: (*rig).withoutToken},
}

func (r *rig) retarget(url string) {
	for _, l := range r.lines {
		r.must(l.proxy.Retarget(url))
	}
}

// forget has the churn look what there is, after the cluster has become another.
func (c *churn) forget() {
	var there map[string]string
	eventually(c.api, time.Minute, "the cluster answers", func() bool {
		code, raw, err := c.api.try("GET", c.path, "")
		if err != nil || code != http.StatusOK {
			return false
		}
		there = versionsOf(raw)
		return there != nil
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.there)
	clear(c.history)
	for name := range there {
		c.there[name] = true
	}
}

// limited makes the lines another user, with no more rights than they need.
func (r *rig) limited() {
	r.upstream = rest.CopyConfig(r.upstream)
	r.upstream.Impersonate = rest.ImpersonationConfig{UserName: r.namespace}
	r.admin.do("POST", "/apis/rbac.authorization.k8s.io/v1/clusterroles", fmt.Sprintf(
		`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"name":%q},"rules":[{"apiGroups":[""],"resources":["configmaps"],"verbs":["get","list","watch"]}]}`, r.namespace))
	r.bind("User", "")
}

const bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"

func (r *rig) bind(kind, namespace string) {
	subject := fmt.Sprintf(`{"kind":%q,"name":%q,"apiGroup":"rbac.authorization.k8s.io"}`, kind, r.namespace)
	if namespace != "" {
		subject = fmt.Sprintf(`{"kind":%q,"name":%q,"namespace":%q}`, kind, r.namespace, namespace)
	}
	r.admin.do("POST", bindings, fmt.Sprintf(
		`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRoleBinding","metadata":{"name":%q},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":%q},"subjects":[%s]}`,
		r.namespace, r.namespace, subject))
}

// withoutRights takes the rights away. A watch that is open goes on, API servers
// do not look again, so it is cut.
func (r *rig) withoutRights() injected {
	r.admin.do("DELETE", bindings+"/"+r.namespace, "")
	eventually(r, time.Minute, "the right is gone", func() bool { return r.allowed() == http.StatusForbidden })
	for _, l := range r.lines {
		l.cutWatches()
	}
	return injected{heal: func() { r.bind("User", "") }}
}

// allowed is what the limited user gets who lists.
func (r *rig) allowed() int {
	req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, r.admin.base+"/api/v1/configmaps?limit=1", nil)
	r.must(err)
	req.Header.Set("Authorization", "Bearer "+r.admin.token)
	req.Header.Set("Impersonate-User", r.namespace)
	resp, err := r.admin.client.Do(req)
	r.must(err)
	defer resp.Body.Close()
	return resp.StatusCode
}

// tokens makes the lines a service account, whose token is read from a file.
func (r *rig) tokens() {
	r.limited()
	r.admin.do("DELETE", bindings+"/"+r.namespace, "")
	accounts := "/api/v1/namespaces/" + r.namespace + "/serviceaccounts"
	r.admin.do("POST", accounts, fmt.Sprintf(`{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":%q}}`, r.namespace))
	r.bind("ServiceAccount", r.namespace)
	r.tokenFile = filepath.Join(r.TempDir(), "token")
	r.token = r.newToken()
	r.upstream.Impersonate, r.upstream.BearerToken = rest.ImpersonationConfig{}, ""
	r.upstream.BearerTokenFile = r.tokenFile
}

// newToken puts a new token into the file.
func (r *rig) newToken() string {
	r.admin.client.CloseIdleConnections()
	var made struct{ Status struct{ Token string } }
	r.must(json.Unmarshal(r.admin.do("POST", "/api/v1/namespaces/"+r.namespace+"/serviceaccounts/"+r.namespace+"/token",
		`{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{"expirationSeconds":3600}}`), &made))
	if made.Status.Token == "" {
		r.Fatal("no token")
	}
	r.must(os.WriteFile(r.tokenFile, []byte(made.Status.Token), 0o600))
	return made.Status.Token
}

func (r *rig) withoutToken() injected {
	old, last := "Bearer "+r.token, r.token
	for _, l := range r.lines {
		l.proxy.Add(&faultproxy.Rule{
			Match:  func(req *http.Request) bool { return req.Header.Get("Authorization") == old },
			Action: faultproxy.Status(unknown),
		})
		l.cutWatches()
	}
	return injected{heal: func() {
		eventually(r, time.Minute, "there is another token", func() bool { r.token = r.newToken(); return r.token != last })
		if strings.Contains(r.lines[0].log.String()+r.lines[1].log.String(), last) {
			r.Error("a token is in the log")
		}
	}}
}
