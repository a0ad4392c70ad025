package hostile

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"

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

// warm makes the mirror list everything, and keeps the tokens that the administrator
// gets.
func (r *run) warm(m *mirror) error {
	admin := r.local
	if !m.loopback {
		admin = r.admin()
	}
	c := &client{address: m.address, tls: m.tls}
	defer c.close()
	get := func(path string, watch bool) answer {
		q := &request{method: "GET", watch: watch}
		return c.ask(q, q.bytes(path, m.address, admin.authorization(), ""))
	}
	for _, k := range resources {
		if m.withoutSecrets && k.plural == "secrets" {
			continue
		}
		own := "/" + k.group + "/" + k.version + "/" + k.plural
		if k.group == "" {
			own = "/core/v1/" + k.plural
		}
		a := get(k.path("", "")+"?limit=2", false)
		if a.status != http.StatusOK {
			return fmt.Errorf("%s does not list %s: %d %s %v", m.name, k.plural, a.status, a.body, a.err)
		}
		r.gen.learn(&r.gen.tokens, continueOf, a.body)
		r.gen.learn(&r.gen.pages, continueOf, get(own+"?limit=2", false).body)
		for _, past := range []string{"?limit=1&at=-1ms", "?limit=1&changes=true"} {
			r.gen.learn(&r.gen.pages, continueOf, get(own+past, false).body)
		}
		r.gen.learn(&r.gen.positions, idOf, get(own+"?watch=true", true).body)
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
