package access_test

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/tidings-io/tidings/cluster"
	"github.com/tidings-io/tidings/cmd/tidings/internal/access"
	"github.com/tidings-io/tidings/internal/controlplane"
	"github.com/tidings-io/tidings/internal/fakeapi"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(controlplane.Tests(m)) }

var (
	tokenReviews  = authenticationv1.SchemeGroupVersion.WithResource("tokenreviews")
	accessReviews = authorizationv1.SchemeGroupVersion.WithResource("subjectaccessreviews")
)

// rig is a reviewer of an in-memory cluster, inside a synctest bubble.
type rig struct {
	*testing.T
	*access.Reviewer
	ctx     context.Context
	cluster *fakeapi.Cluster
	gate    *access.Gate

	mu     sync.Mutex
	rights map[string]map[access.Attributes]bool // by user; only what is there is allowed
}

const mirrorToken = "mirror-token"

var pods = access.Attributes{Verb: "list", Version: "v1", Resource: "pods", Namespace: "default"}

func inBubble(t *testing.T, options access.Options, test func(*rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &rig{T: t, ctx: t.Context(), rights: map[string]map[access.Attributes]bool{}}
		r.cluster = fakeapi.New(fakeapi.Options{Allow: r.allowed, Users: map[string]fakeapi.User{
			mirrorToken:   {Name: "mirror"},
			"alice-token": {Name: "alice", Groups: []string{"people"}},
			"bob-token":   {Name: "bob"},

			"alice-in-others": {Name: "alice", Groups: []string{"others"}},
			"alice-recreated": {Name: "alice", UID: "3"},
		}})
		config, stop := fakeapi.InProcess(r.cluster)
		defer stop()
		config.BearerToken = mirrorToken
		c, err := cluster.New("test", config)
		r.must(err)
		options.Logger = slog.New(slog.DiscardHandler)
		r.gate, err = access.NewGate(options)
		r.must(err)
		r.Reviewer, err = r.gate.Reviewer(c, func(*cluster.Cluster) bool { return true })
		r.must(err)
		test(r)
	})
}

func (r *rig) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

func (r *rig) allowed(u fakeapi.User, a fakeapi.Access) bool {
	if u.Name == "mirror" {
		return true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.rights[u.Name][access.Attributes{
		Verb: a.Verb, Group: a.Group, Version: a.Version, Resource: a.Resource, Subresource: a.Subresource, Namespace: a.Namespace, Name: a.Name, Path: a.Path,
	}]
}

// grant gives or removes a right.
func (r *rig) grant(user string, a access.Attributes, granted bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.rights[user] == nil {
		r.rights[user] = map[access.Attributes]bool{}
	}
	r.rights[user][a] = granted
}

// bearer returns the credentials of a request with a token and other headers.
func bearer(token string, headers ...string) access.Credentials {
	h := http.Header{}
	if token != "" {
		h.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i < len(headers); i += 2 {
		h.Add(headers[i], headers[i+1])
	}
	return access.CredentialsOf(&http.Request{Header: h})
}

// may returns the reviewer's result for a token and an action.
func (r *rig) may(credentials access.Credentials, a access.Attributes) error {
	caller, err := r.Authenticate(r.ctx, credentials)
	if err != nil {
		return err
	}
	return r.Authorize(r.ctx, caller, a)
}
