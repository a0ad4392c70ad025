package hostile

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/tidings-io/tidings/cmd/tidings/test/reliability/soak"
)

// mirror is a server under test.
type mirror struct {
	name           string
	loopback       bool // without authentication
	passthrough    bool
	withoutSecrets bool // no --resource names them
	weight         int  // its share of the requests
	process        *soak.Process
	auditLog       string // its file
	address        string
	tls            *tls.Config
}

func (m *mirror) start(ctx context.Context, binary, kubeconfig, log string) (err error) {
	if m.address, err = soak.FreeAddress(); err != nil {
		return err
	}
	m.auditLog = log + ".audit"
	flags := []string{"--kubeconfig", kubeconfig, "--resource", "*", "--page-ttl", "24h", "--audit-log", m.auditLog, "--audit-log-maxsize", "1000", "--history", log + ".history"}
	if !m.withoutSecrets {
		flags = append(flags, "--resource", "secrets", "--history-secrets")
	}
	if m.passthrough {
		flags = append(flags, "--passthrough")
	}
	if !m.loopback {
		flags = append(flags, "--authentication", "upstream")
		m.tls = &tls.Config{InsecureSkipVerify: true, ClientSessionCache: tls.NewLRUClientSessionCache(1)} // its authority has just been generated
	}
	m.process, err = soak.Serve(ctx, binary, m.address, log, nil, flags...)
	return err
}

var (
	continueOf = regexp.MustCompile(`"continue":"([^"]+)"`)
	idOf       = regexp.MustCompile(`(?m)^id: (.+)$`)
)

// get makes a request as a caller that may read everything.
func (r *run) get(m *mirror, path string, watch bool) answer {
	admin := r.local
	if !m.loopback {
		admin = r.admin()
	}
	c := &client{address: m.address, tls: m.tls}
	defer c.close()
	q := &request{method: "GET", watch: watch}
	return c.ask(q, q.bytes(path, m.address, admin.authorization(), ""))
}

// has are the resources that the mirror has.
func (m *mirror) has() []resource {
	return slices.DeleteFunc(slices.Clone(resources), func(k resource) bool { return m.withoutSecrets && k.plural == "secrets" })
}

// own is the path of a resource among the mirror's own routes.
func (k resource) own() string {
	if k.group == "" {
		return "/core/v1/" + k.plural
	}
	return "/" + k.group + "/" + k.version + "/" + k.plural
}

// warm makes the mirror list everything, and waits until its history has begun.
func (r *run) warm(ctx context.Context, m *mirror) error {
	for _, k := range m.has() {
		if a := r.get(m, k.path("", "")+"?limit=2", false); a.status != http.StatusOK {
			return fmt.Errorf("%s does not list %s: %d %s %v", m.name, k.plural, a.status, a.body, a.err)
		}
		for r.get(m, k.own()+"?limit=1&at=-0s", false).status != http.StatusOK {
			if !soak.Sleep(ctx, 20*time.Millisecond) {
				return fmt.Errorf("%s keeps no history of %s: %w", m.name, k.plural, ctx.Err())
			}
		}
	}
	return nil
}

// collect waits until the mirror has the past, and keeps the tokens that the administrator
// gets.
func (r *run) collect(ctx context.Context, m *mirror, since string) error {
	changes := "changes=true&since=" + since
	for _, k := range m.has() {
		want := 1
		if k.namespaced {
			want = len(namespaceNames)
		}
		for k.body != "" && strings.Count(string(r.get(m, k.own()+"?"+changes, false).body), `"type":"DELETED"`) < want {
			if !soak.Sleep(ctx, 20*time.Millisecond) {
				return fmt.Errorf("%s has no past of %s: %w", m.name, k.plural, ctx.Err())
			}
		}
		r.gen.learn(&r.gen.tokens, continueOf, r.get(m, k.path("", "")+"?limit=2", false).body)
		in := []string{k.own()}
		if k.namespaced {
			in = append(in, k.own()+"/team-1", k.own()+"/team-2")
		}
		for _, path := range in {
			for _, query := range []string{"?limit=2", "?limit=1&at=-1ms", "?limit=1&" + changes, "?limit=1&objects=true&" + changes} {
				r.gen.learn(&r.gen.pages, continueOf, r.get(m, path+query, false).body)
			}
		}
		r.gen.learn(&r.gen.positions, idOf, r.get(m, k.own()+"?watch=true", true).body)
	}
	return nil
}

// learn keeps tokens for other callers to try.
func (g *generator) learn(in *[]string, what *regexp.Regexp, body []byte) {
	for _, found := range what.FindAllSubmatch(body, -1) {
		var s string
		if json.Unmarshal([]byte(`"`+string(found[1])+`"`), &s) == nil {
			*in = append(*in, url.QueryEscape(s))
		}
	}
}
