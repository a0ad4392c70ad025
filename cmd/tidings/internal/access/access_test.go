package access_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/tidings-io/tidings/cluster"
	"github.com/tidings-io/tidings/cmd/tidings/internal/access"
	"github.com/tidings-io/tidings/internal/fakeapi"
)

func TestSharesReviews(t *testing.T) {
	inBubble(t, access.Options{}, func(r *rig) {
		r.grant("alice", pods, true)
		var all sync.WaitGroup
		for i := range 100 {
			all.Go(func() {
				if err := r.may(bearer("alice-token"), pods); err != nil {
					t.Error(err)
				}
				// The same action of another caller has its own result.
				if err := r.may(bearer("bob-token"), pods); !apierrors.IsForbidden(err) {
					t.Errorf("bob: %v", err)
				}
				other := pods
				other.Namespace = fmt.Sprint("ns-", i%3)
				if err := r.may(bearer("alice-token"), other); !apierrors.IsForbidden(err) {
					t.Errorf("alice, elsewhere: %v", err)
				}
			})
		}
		all.Wait()
		if n := r.cluster.Count("create", tokenReviews); n != 2 {
			t.Errorf("%d TokenReviews for two tokens", n)
		}
		if n := r.cluster.Count("create", accessReviews); n != 5 {
			t.Errorf("%d SubjectAccessReviews for five actions", n)
		}
	})
}

func TestResultsExpire(t *testing.T) {
	inBubble(t, access.Options{}, func(r *rig) {
		r.grant("alice", pods, true)
		r.must(r.may(bearer("alice-token"), pods))
		r.grant("alice", pods, false)
		time.Sleep(9 * time.Second)
		r.must(r.may(bearer("alice-token"), pods))
		time.Sleep(time.Second)
		if err := r.may(bearer("alice-token"), pods); !apierrors.IsForbidden(err) {
			t.Errorf("10 s after the right has gone: %v", err)
		}
		r.grant("alice", pods, true)
		if err := r.may(bearer("alice-token"), pods); !apierrors.IsForbidden(err) {
			t.Errorf("a no is not remembered: %v", err)
		}
		time.Sleep(2 * time.Second)
		r.must(r.may(bearer("alice-token"), pods))

		if err := r.may(bearer("nobody's"), pods); !apierrors.IsUnauthorized(err) {
			t.Errorf("a token of nobody: %v", err)
		}
		if err := r.may(bearer(""), pods); !apierrors.IsUnauthorized(err) {
			t.Errorf("no token: %v", err)
		}
	})
}

func TestRefusesWhileUnavailable(t *testing.T) {
	inBubble(t, access.Options{Grace: -1}, func(r *rig) {
		r.grant("alice", pods, true)
		r.must(r.may(bearer("alice-token"), pods))
		r.cluster.SetDown(true)
		r.must(r.may(bearer("alice-token"), pods)) // it is still believed
		time.Sleep(10 * time.Second)
		for _, token := range []string{"alice-token", "bob-token"} {
			err := r.may(bearer(token), pods)
			if wait, ok := apierrors.SuggestsClientDelay(err); !access.IsUnavailable(err) || !ok || wait != 1 || !strings.Contains(err.Error(), "cluster test cannot be asked") {
				t.Errorf("%s, with the cluster down: %v", token, err)
			}
		}
		r.cluster.SetDown(false)
		time.Sleep(time.Second)
		r.must(r.may(bearer("alice-token"), pods))
		if err := r.may(bearer("bob-token"), pods); !apierrors.IsForbidden(err) {
			t.Errorf("bob: %v", err)
		}

		// A mirror without the right to review says which right it lacks.
		defer r.cluster.Inject(func(req *fakeapi.Request) *fakeapi.Fault {
			if req.Resource == accessReviews {
				return &fakeapi.Fault{Status: &apierrors.NewForbidden(accessReviews.GroupResource(), "", errors.New("no")).ErrStatus}
			}
			return nil
		})()
		time.Sleep(10 * time.Second)
		if err := r.may(bearer("alice-token"), pods); !access.IsUnavailable(err) || !strings.Contains(err.Error(), "system:auth-delegator") {
			t.Errorf("a mirror that may not ask: %v", err)
		}
	})
}

// A caller that gives up does not end the review for others that wait for it. A cluster
// that does not answer is not waited for without end.
func TestReviewsOutliveTheirCallers(t *testing.T) {
	inBubble(t, access.Options{}, func(r *rig) {
		r.grant("alice", pods, true)
		release := make(chan struct{})
		remove := r.cluster.Inject(func(req *fakeapi.Request) *fakeapi.Fault {
			if req.Resource == tokenReviews {
				return &fakeapi.Fault{Until: release}
			}
			return nil
		})
		ctx, cancel := context.WithCancel(r.ctx)
		first := make(chan error, 1)
		go func() {
			_, err := r.Authenticate(ctx, bearer("alice-token"))
			first <- err
		}()
		synctest.Wait()
		second := make(chan error, 1)
		go func() { second <- r.may(bearer("alice-token"), pods) }()
		synctest.Wait()
		cancel()
		if err := <-first; !errors.Is(err, context.Canceled) {
			t.Errorf("who has given up gets %v", err)
		}
		close(release)
		r.must(<-second)
		remove()
		defer r.cluster.Inject(func(req *fakeapi.Request) *fakeapi.Fault {
			if req.Resource == tokenReviews {
				return &fakeapi.Fault{Until: make(chan struct{})}
			}
			return nil
		})()
		begun := time.Now()
		_, err := r.Authenticate(r.ctx, bearer("bob-token"))
		if took := time.Since(begun); !access.IsUnavailable(err) || took != 10*time.Second {
			t.Errorf("after %s: %v", took, err)
		}
	})
}

func TestOpenRequestsEndWithTheRight(t *testing.T) {
	inBubble(t, access.Options{Grace: time.Minute}, func(r *rig) {
		watch := pods
		watch.Verb = "watch"
		r.grant("alice", watch, true)
		hold := func() (context.Context, func()) {
			caller, err := r.Authenticate(r.ctx, bearer("alice-token"))
			r.must(err)
			r.must(r.Authorize(r.ctx, caller, watch))
			return r.Reauthorize(r.ctx, r.Check(bearer("alice-token"), caller, watch))
		}
		ended := func(ctx context.Context) time.Duration {
			begun := time.Now()
			select {
			case <-ctx.Done():
			case <-time.After(10 * time.Minute):
				t.Fatal("it does not end")
			}
			if !access.IsLost(ctx) {
				t.Errorf("it ended because of %v", context.Cause(ctx))
			}
			return time.Since(begun)
		}

		ctx, stop := hold()
		time.Sleep(5 * time.Minute)
		if ctx.Err() != nil {
			t.Fatal(context.Cause(ctx))
		}
		r.grant("alice", watch, false)
		if took := ended(ctx); took > 11*time.Second || !apierrors.IsForbidden(context.Cause(ctx)) {
			t.Errorf("the right went; after %s: %v", took, context.Cause(ctx))
		}
		stop()

		r.grant("alice", watch, true)
		time.Sleep(time.Minute)
		ctx, stop = hold()
		time.Sleep(time.Minute)
		remove := r.cluster.Inject(func(req *fakeapi.Request) *fakeapi.Fault {
			if req.Resource == accessReviews {
				return &fakeapi.Fault{Status: &apierrors.NewServiceUnavailable("no").ErrStatus}
			}
			return nil
		})
		time.Sleep(45 * time.Second) // less than the grace, of which up to ten seconds are over: the age of the last yes
		if ctx.Err() != nil {
			t.Fatal("it ended while the cluster was gone for a moment: ", context.Cause(ctx))
		}
		remove()
		time.Sleep(time.Minute)
		if ctx.Err() != nil {
			t.Fatal(context.Cause(ctx))
		}
		r.cluster.SetDown(true)
		if took := ended(ctx); took < 49*time.Second || took > 72*time.Second || !access.IsUnavailable(context.Cause(ctx)) {
			t.Errorf("the cluster went; after %s: %v", took, context.Cause(ctx))
		}
		stop()
		r.cluster.SetDown(false)
		time.Sleep(time.Minute)

		// A request that has ended sends no more reviews.
		ctx, stop = hold()
		stop()
		r.cluster.ResetCounts()
		time.Sleep(5 * time.Minute)
		if n := r.cluster.Count("create", accessReviews); n != 0 || access.IsLost(ctx) {
			t.Errorf("%d reviews for a request that has ended: %v", n, context.Cause(ctx))
		}
	})
}

func TestOpenRequestsEndWithTheToken(t *testing.T) {
	inBubble(t, access.Options{}, func(r *rig) {
		r.grant("alice", pods, true)
		caller, err := r.Authenticate(r.ctx, bearer("alice-token"))
		r.must(err)
		ctx, stop := r.Reauthorize(r.ctx, r.Check(bearer("alice-token"), caller, pods))
		defer stop()
		time.Sleep(time.Minute)
		r.cluster.RemoveUser("alice-token")
		time.Sleep(12 * time.Second)
		if ctx.Err() == nil || !apierrors.IsUnauthorized(context.Cause(ctx)) {
			t.Errorf("the token went: %v", context.Cause(ctx))
		}
	})
}

func TestImpersonation(t *testing.T) {
	inBubble(t, access.Options{}, func(r *rig) {
		r.grant("carol", pods, true)
		as := bearer("alice-token", "Impersonate-User", "carol")
		if err := r.may(as, pods); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `User "alice" cannot impersonate resource "users" in API group "" at the cluster scope`) {
			t.Errorf("alice, who may not act as others: %v", err)
		}
		r.grant("alice", access.Attributes{Verb: "impersonate", Resource: "users", Name: "carol"}, true)
		time.Sleep(2 * time.Second)
		r.must(r.may(as, pods))
		if err := r.may(bearer("alice-token"), pods); !apierrors.IsForbidden(err) {
			t.Errorf("alice as herself: %v", err)
		}
		for _, headers := range [][]string{
			{"Impersonate-User", "dave"},
			{"Impersonate-User", "carol", "Impersonate-Group", "system:masters"},
			{"Impersonate-User", "carol", "Impersonate-Uid", "1"},
			{"Impersonate-User", "carol", "Impersonate-Extra-Scopes", "all"},
			{"Impersonate-User", "system:serviceaccount:default:carol"},
		} {
			if err := r.may(bearer("alice-token", headers...), pods); !apierrors.IsForbidden(err) {
				t.Errorf("alice as %v: %v", headers, err)
			}
		}
		if err := r.may(bearer("alice-token", "Impersonate-Group", "people"), pods); !apierrors.IsBadRequest(err) {
			t.Errorf("a group without a user: %v", err)
		}
	})
}

func TestReviewersEndWithTheirClusters(t *testing.T) {
	inBubble(t, access.Options{}, func(r *rig) {
		config, stop := fakeapi.InProcess(r.cluster)
		defer stop()
		one, err := cluster.New("test", config)
		r.must(err)
		two, err := cluster.New("test", config)
		r.must(err)
		used := map[*cluster.Cluster]bool{one: true}
		reviewer := func(c *cluster.Cluster) *access.Reviewer {
			out, err := r.gate.Reviewer(c, func(c *cluster.Cluster) bool { return used[c] })
			r.must(err)
			return out
		}
		first := reviewer(one)
		if reviewer(one) != first {
			t.Error("another reviewer of the same cluster")
		}
		used = map[*cluster.Cluster]bool{two: true}
		second := reviewer(two)
		if second == first || reviewer(one) == first {
			t.Error("what a cluster has answered is kept for the one that took its name")
		}
	})
}

func TestCredentialsAreNotPrinted(t *testing.T) {
	inBubble(t, access.Options{}, func(r *rig) {
		credentials := bearer("alice-token")
		caller, err := r.Authenticate(r.ctx, credentials)
		r.must(err)
		var printed bytes.Buffer
		for _, v := range []any{credentials, &credentials, caller, *caller, struct {
			C access.Credentials
			c access.Credentials
			p *access.Caller
		}{credentials, credentials, caller}} {
			fmt.Fprintf(&printed, "%v %+v %#v %s %q\n", v, v, v, v, v)
			slog.New(slog.NewJSONHandler(&printed, nil)).Info("x", "v", v)
			slog.New(slog.NewTextHandler(&printed, nil)).Info("x", "v", v)
		}
		if strings.Contains(printed.String(), "alice-token") {
			t.Errorf("the token is printed: %s", printed.String())
		}
		if !strings.Contains(printed.String(), "alice") {
			t.Errorf("the caller has no name: %s", printed.String())
		}
	})
}

// Reviews in any order get their own results: a cached result is for that caller and
// that action, however similar others are.
func TestNeverMixesUpResults(t *testing.T) {
	inBubble(t, access.Options{}, func(r *rig) {
		rnd := rand.New(rand.NewPCG(7, 8))
		pick := func(from ...string) string { return from[rnd.IntN(len(from))] }
		secret, configMap := access.Attributes{Verb: "get", Resource: "secrets", Name: "one"}, access.Attributes{Verb: "get", Resource: "configmaps", Name: "one"}
		r.grant("alice", configMap, true)
		r.must(r.may(bearer("alice-token"), configMap))
		if err := r.may(bearer("alice-token"), secret); !apierrors.IsForbidden(err) {
			t.Errorf("a Secret of a ConfigMap's name: %v", err)
		}
		granted := map[string]bool{}
		for range 3000 {
			user := pick("alice", "bob")
			a := access.Attributes{
				Verb: pick("get", "list", "watch"), Group: pick("", "a", "ab"), Resource: pick("b", "bc", "c"), Subresource: pick("", "c"),
				Namespace: pick("", "n", "n/c"), Name: pick("", "n", "c"),
			}
			key := fmt.Sprintf("%s %+v", user, a)
			if _, known := granted[key]; !known {
				granted[key] = rnd.IntN(2) == 0
				r.grant(user, a, granted[key])
			}
			if err := r.may(bearer(user+"-token"), a); (err == nil) != granted[key] {
				t.Fatalf("%s: granted %v, answered %v", key, granted[key], err)
			}
		}
	})
}
