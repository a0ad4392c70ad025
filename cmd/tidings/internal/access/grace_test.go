package access_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tidings-io/tidings/cmd/tidings/internal/access"
	"github.com/tidings-io/tidings/internal/fakeapi"
)

// outages are the ways in which a cluster is unavailable.
var outages = map[string]func(*rig, ...schema.GroupVersionResource) (over func()){
	"unreachable": func(r *rig, _ ...schema.GroupVersionResource) func() {
		r.cluster.SetDown(true)
		return func() { r.cluster.SetDown(false) }
	},
	"unavailable": func(r *rig, of ...schema.GroupVersionResource) func() {
		return r.faulty(&fakeapi.Fault{Status: &apierrors.NewServiceUnavailable("no").ErrStatus}, of...)
	},
	"crowded": func(r *rig, of ...schema.GroupVersionResource) func() {
		return r.faulty(&fakeapi.Fault{Status: &apierrors.NewTooManyRequests("no", 1).ErrStatus}, of...)
	},
	"silent": func(r *rig, of ...schema.GroupVersionResource) func() {
		release := make(chan struct{})
		remove := r.faulty(&fakeapi.Fault{Until: release}, of...)
		return func() { remove(); close(release); synctest.Wait() }
	},
}

func (r *rig) faulty(fault *fakeapi.Fault, of ...schema.GroupVersionResource) func() {
	return r.cluster.Inject(func(req *fakeapi.Request) *fakeapi.Fault {
		for _, resource := range of {
			if req.Resource == resource {
				return fault
			}
		}
		return nil
	})
}

// graced is the number of results returned by grace.
func (r *rig) graced() (n float64) {
	r.Helper()
	registry := prometheus.NewPedanticRegistry()
	r.must(registry.Register(r.gate))
	families, err := registry.Gather()
	r.must(err)
	for _, f := range families {
		for _, m := range f.Metric {
			for _, l := range m.Label {
				if l.GetValue() == "grace" {
					n += m.GetCounter().GetValue()
				}
			}
		}
	}
	return n
}

// While the cluster is unavailable, the last positive result serves new requests, open
// ones and impersonations. Nobody else is admitted, and a negative result ends the
// grace.
func TestGrace(t *testing.T) {
	for name, outage := range outages {
		t.Run(name, func(t *testing.T) {
			inBubble(t, access.Options{}, func(r *rig) {
				watch := pods
				watch.Verb = "watch"
				r.grant("alice", pods, true)
				r.grant("alice", watch, true)
				r.grant("carol", pods, true)
				r.grant("alice", access.Attributes{Verb: "impersonate", Resource: "users", Name: "carol"}, true)
				asCarol := bearer("alice-token", "Impersonate-User", "carol")
				caller, err := r.Authenticate(r.ctx, bearer("alice-token"))
				r.must(err)
				r.must(r.Authorize(r.ctx, caller, watch))
				open, stop := r.Reauthorize(r.ctx, r.Check(bearer("alice-token"), caller, watch))
				defer stop()
				r.must(r.may(asCarol, pods))
				r.must(r.may(bearer("alice-token"), pods))
				if n := r.graced(); n != 0 {
					t.Errorf("%v answers by grace, of a cluster that answers", n)
				}

				over := outage(r, tokenReviews, accessReviews)
				for range 28 { // four minutes and forty seconds
					time.Sleep(10 * time.Second)
					begun := time.Now()
					r.must(r.may(bearer("alice-token"), pods))
					r.must(r.may(asCarol, pods))
					if took := time.Since(begun); took > 9*time.Second {
						t.Errorf("waited %s for a cluster that is away", took)
					}
				}
				if open.Err() != nil {
					t.Fatal(context.Cause(open))
				}
				if r.graced() == 0 {
					t.Error("no answer by grace is counted")
				}
				secret := pods
				secret.Resource = "secrets"
				for who, a := range map[string]access.Attributes{"alice-token": secret, "bob-token": pods} {
					if err := r.may(bearer(who), a); !access.IsUnavailable(err) {
						t.Errorf("%s, %s: %v", who, a.Resource, err)
					}
				}
				time.Sleep(45 * time.Second)
				if err := r.may(bearer("alice-token"), pods); !access.IsUnavailable(err) {
					t.Errorf("after the grace: %v", err)
				}
				if !access.IsLost(open) || !access.IsUnavailable(context.Cause(open)) {
					t.Errorf("what is open, after the grace: %v", context.Cause(open))
				}
				over()
				time.Sleep(2 * time.Second)
				r.must(r.may(bearer("alice-token"), pods))
			})
		})
	}
}

func TestDenialEndsGrace(t *testing.T) {
	inBubble(t, access.Options{}, func(r *rig) {
		watch := pods
		watch.Verb = "watch"
		r.grant("alice", pods, true)
		r.grant("alice", watch, true)
		caller, err := r.Authenticate(r.ctx, bearer("alice-token"))
		r.must(err)
		r.must(r.may(bearer("alice-token"), pods))
		r.must(r.Authorize(r.ctx, caller, watch))
		open, stop := r.Reauthorize(r.ctx, r.Check(bearer("alice-token"), caller, watch))
		defer stop()
		r.cluster.SetDown(true)
		time.Sleep(time.Minute)
		r.must(r.may(bearer("alice-token"), pods))
		r.grant("alice", pods, false)
		r.grant("alice", watch, false)
		r.cluster.SetDown(false)
		time.Sleep(3 * time.Second)
		if err := r.may(bearer("alice-token"), pods); !apierrors.IsForbidden(err) {
			t.Errorf("the right has gone: %v", err)
		}
		if !apierrors.IsForbidden(context.Cause(open)) {
			t.Errorf("what is open: %v", context.Cause(open))
		}
		r.cluster.SetDown(true) // once more: there is no yes any more
		time.Sleep(10 * time.Second)
		if err := r.may(bearer("alice-token"), pods); !access.IsUnavailable(err) {
			t.Errorf("a no is forgotten: %v", err)
		}
	})
}

// There is no grace if the cluster answers but forbids the mirror to review.
func TestNoGraceWithoutRightToReview(t *testing.T) {
	inBubble(t, access.Options{}, func(r *rig) {
		r.grant("alice", pods, true)
		r.must(r.may(bearer("alice-token"), pods))
		defer r.faulty(&fakeapi.Fault{Status: &apierrors.NewForbidden(accessReviews.GroupResource(), "", errors.New("no")).ErrStatus}, accessReviews)()
		time.Sleep(10 * time.Second)
		if err := r.may(bearer("alice-token"), pods); !access.IsUnavailable(err) {
			t.Error(err)
		}
	})
}

// The namespaces that a caller may read stay the same.
func TestAllowedNamespacesWhileUnavailable(t *testing.T) {
	inBubble(t, access.Options{}, func(r *rig) {
		in := pods
		in.Namespace = "mine"
		r.grant("alice", in, true)
		caller, err := r.Authenticate(r.ctx, bearer("alice-token"))
		r.must(err)
		see := func() string {
			found, _, err := r.AllowedNamespaces(r.ctx, caller, pods, []string{"mine", "other"})
			if err != nil {
				return err.Error()
			}
			return strings.Join(found, ",")
		}
		if got := see(); got != "mine" {
			t.Fatal(got)
		}
		r.cluster.SetDown(true)
		for range 5 {
			time.Sleep(40 * time.Second)
			if got := see(); got != "mine" {
				t.Fatal(got)
			}
		}
		time.Sleep(3 * time.Minute)
		if got := see(); !strings.Contains(got, "cannot be asked") {
			t.Fatal(got)
		}
	})
}

// A user with ever more reviews evicts its own results and no others.
func TestOneUserEvictsOnlyItsOwnResults(t *testing.T) {
	inBubble(t, access.Options{MaxEntries: 20, AllowTTL: time.Hour, DenyTTL: time.Hour}, func(r *rig) {
		at := func(i int) access.Attributes {
			a := pods
			a.Namespace = fmt.Sprint("ns-", i)
			return a
		}
		asked := func(do func()) int {
			r.cluster.ResetCounts()
			do()
			return r.cluster.Count("create", accessReviews) + r.cluster.Count("create", tokenReviews)
		}
		for i := range 5 {
			_ = r.may(bearer("alice-token"), at(i))
		}
		for i := range 100 {
			_ = r.may(bearer("bob-token"), at(i))
			_ = r.may(bearer(fmt.Sprint("nobody-", i)), pods)
		}
		if n := asked(func() {
			for i := range 5 {
				_ = r.may(bearer("alice-token"), at(i))
			}
			for i := 90; i < 100; i++ { // his newest
				_ = r.may(bearer("bob-token"), at(i))
			}
		}); n != 0 {
			t.Errorf("%d reviews were sent again", n)
		}
		if n := asked(func() { _ = r.may(bearer("bob-token"), at(0)) }); n != 1 {
			t.Errorf("%d reviews for evicted results", n)
		}
	})
}

// Several tokens or certificates of a user are one caller.
func TestKeyIsOfTheUser(t *testing.T) {
	inBubble(t, access.Options{}, func(r *rig) {
		r.grant("alice", access.Attributes{Verb: "impersonate", Resource: "users", Name: "bob"}, true)
		key := func(c access.Credentials) string {
			caller, err := r.Authenticate(r.ctx, c)
			r.must(err)
			return caller.Key()
		}
		alice := key(bearer("alice-token"))
		if key(bearer("alice-in-others")) != alice {
			t.Error("another token makes another caller")
		}
		if key(bearer("alice-recreated")) == alice || key(bearer("bob-token")) == alice {
			t.Error("others are the same caller")
		}
		if key(bearer("alice-token", "Impersonate-User", "bob")) != key(bearer("bob-token")) {
			t.Error("who acts as another is another caller than that")
		}
	})
}

// Invented tokens are reviewed in seats of their own, and keep nobody waiting whose
// token has been accepted.
func TestUnverifiedCredentialsHaveTheirOwnSeats(t *testing.T) {
	inBubble(t, access.Options{MaxReviews: 1, MaxUnverifiedReviews: 2, Timeout: 5 * time.Second}, func(r *rig) {
		r.grant("alice", pods, true)
		r.must(r.may(bearer("alice-token"), pods))
		for token, want := range map[string]bool{"alice-token": false, "bob-token": true} {
			if is, err := r.IsUnverified(bearer(token)); is != want || err != nil {
				t.Errorf("%s: %v %v", token, is, err)
			}
		}
		_ = r.Verify(r.ctx, bearer("nobody"))
		if _, err := r.IsUnverified(bearer("nobody")); !apierrors.IsUnauthorized(err) {
			t.Errorf("a token that has just been refused: %v", err)
		}
		r.must(r.Verify(r.ctx, bearer("bob-token", "Impersonate-User", "carol"))) // whatever he wants
		if is, err := r.IsUnverified(bearer("bob-token")); is || err != nil {
			t.Errorf("bob: %v %v", is, err)
		}

		time.Sleep(10 * time.Second) // the answers have run out
		if is, err := r.IsUnverified(bearer("alice-token")); is || err != nil {
			t.Errorf("alice, to be asked about again: %v %v", is, err)
		}
		var under, most atomic.Int32
		release := make(chan struct{})
		defer r.cluster.Inject(func(req *fakeapi.Request) *fakeapi.Fault {
			if req.Resource == tokenReviews && under.Add(1) <= 2 {
				most.Store(max(most.Load(), under.Load()))
				return &fakeapi.Fault{Until: release}
			}
			return nil
		})()
		ended := make(chan error, 10)
		for i := range 10 {
			go func() { ended <- r.Verify(r.ctx, bearer(fmt.Sprint("invented-", i))) }()
		}
		synctest.Wait()
		if under.Load() != 2 {
			t.Errorf("%d reviews of unverified tokens", under.Load())
		}
		begun := time.Now()
		r.must(r.may(bearer("alice-token"), pods))
		if took := time.Since(begun); took != 0 {
			t.Errorf("waited %s behind unverified tokens", took)
		}
		close(release)
		for range 10 {
			if err := <-ended; !apierrors.IsUnauthorized(err) {
				t.Error(err)
			}
		}
	})
}
