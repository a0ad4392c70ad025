// Package churn runs one controller on two engines of informers, against a real
// API server and while the same things happen to its objects, and compares what
// comes of it: the objects in the end, the requests of the reflectors and the
// calls of the controller. [Compare] says what is claimed.
package churn

import (
	"context"
	"sync"
	"testing"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/tidings-io/tidings/internal/controlplane"
)

// A Subject is a controller that keeps children for parents.
type Subject struct {
	Name string // part of the names of namespaces
	// Collections are the paths of what the controller's informers follow, each
	// by one reflector, with NAMESPACE for the namespace.
	Collections []string
	Family      func(client kubernetes.Interface, namespace string) Family
	// Value is the [Parent.Value] in a child that the controller sends, if the
	// object is a child and has one.
	Value func(object map[string]any) (value int, ok bool)
	// Engines run the controller until ctx ends, with so many workers. The
	// first is the one to compare with.
	Engines [2]Engine
}

// An Engine is a controller with the informers of one implementation.
type Engine struct {
	Name string
	Run  func(ctx context.Context, config *rest.Config, namespace string, workers int) error
}

// A Family is a test's hands and eyes in the namespace of a controller. What is
// not there is not deleted, spoiled or taken for an error.
type Family interface {
	// Apply makes the parent or changes it, whatever its version is.
	Apply(ctx context.Context, name string, to Parent) error
	Delete(ctx context.Context, name string) error
	// Kill deletes a child, whose number is n modulo the number of children.
	Kill(ctx context.Context, name string, of Parent, n int) error
	// Spoil changes a child so that the controller has to repair it.
	Spoil(ctx context.Context, name string, of Parent, n int) error
	// Want tells in lines what there should be for a parent.
	Want(name string, parent Parent) []string
	// Have tells in such lines all that there is.
	Have(ctx context.Context) ([]string, error)
}

// Compare runs the controller on both engines beside each other, in namespaces of
// their own, through the same phases with the same dice, and fails the test where
// they differ.
//
// Each phase but the last does what leaves no room for chance in what a correct
// controller has to call: one thing happens to each parent and its children, or
// the controller sees many at once. It is over when the children are what they
// should be and what happened then to another parent, the beacon, has come all
// the way through the informers and the queue without another call in between.
// Of these phases is claimed that
//
//   - the reflectors of each resource make the same sequence of requests: path,
//     parameters, status; versions are compared by what they are (none, 0, the
//     last that this reflector has read), timeouts by their range. While the API
//     server is down, requests without an answer do not count;
//   - the controller makes the same calls, as a multiset: verb, path, body,
//     status; without uids, versions and times. Discovery does not count.
//
// In the last phase everything happens at once while watches break. Which events
// a controller sees as one is then chance, and with it what it calls. Of each
// engine is claimed, from what happened in its own run, that
//
//   - no child was created, deleted or updated more often than something
//     happened to its parent or the parent's children;
//   - the values that were written to a child never went back;
//   - reflectors asked for nothing that client-go's asked for in no phase.
//
// In the end both namespaces hold the same objects, but for uids, versions and
// times.
//
// Compare restarts the API server of cp, which should be the test's own.
func Compare(t *testing.T, cp *controlplane.Cluster, s Subject, seed int64) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	both := newMeeting(len(s.Engines))
	var records [len(s.Engines)]*record
	var running sync.WaitGroup
	for i, engine := range s.Engines {
		running.Go(func() {
			r, err := s.run(ctx, cp, both, engine, seed)
			if err != nil {
				if ctx.Err() == nil { // or the other engine has failed
					t.Errorf("%s on %s: %v", s.Name, engine.Name, err)
				}
				cancel()
				return
			}
			t.Logf("%s on %s, what was done and what its reflectors asked for:\n%s", s.Name, engine.Name, r)
			records[i] = r
		})
	}
	running.Wait()
	if t.Failed() {
		return
	}
	for _, difference := range differences(records[0], records[1]) {
		t.Error(difference)
	}
}
