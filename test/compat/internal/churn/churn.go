// Package churn runs one controller on two informer engines, against a real API
// server and with the same changes to its objects. It compares the final objects,
// the requests of the reflectors and the calls of the controller. [Compare] says
// what must be equal.
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
	// Collections are the paths that the controller's informers list and watch,
	// one reflector each. NAMESPACE stands for the namespace.
	Collections []string
	Driver      func(client kubernetes.Interface, namespace string) Driver
	// Value returns the [Parent.Value] in an object that the controller sends,
	// if the object is a child and has one.
	Value func(object map[string]any) (value int, ok bool)
	// Engines run the controller until ctx ends, with the given number of
	// workers. The first is the reference.
	Engines [2]Engine
}

// An Engine runs the controller on one implementation of informers.
type Engine struct {
	Name string
	Run  func(ctx context.Context, config *rest.Config, namespace string, workers int) error
}

// A Driver changes and reads a controller's objects in one namespace, for the
// test. Objects that do not exist are not an error in Delete, DeleteChild and
// CorruptChild.
type Driver interface {
	// Apply creates or changes the parent, whatever its version is.
	Apply(ctx context.Context, name string, to Parent) error
	Delete(ctx context.Context, name string) error
	// DeleteChild deletes a child: the one whose number is n modulo the number
	// of children.
	DeleteChild(ctx context.Context, name string, of Parent, n int) error
	// CorruptChild changes a child so that the controller must repair it.
	CorruptChild(ctx context.Context, name string, of Parent, n int) error
	// Expected describes, in lines, the objects that a parent should lead to.
	Expected(name string, parent Parent) []string
	// Actual describes all existing objects in such lines.
	Actual(ctx context.Context) ([]string, error)
}

// Compare runs the controller on both engines at the same time, each in a
// namespace of its own, through the same phases with the same seed. It fails
// the test where they differ.
//
// In each phase but the last, a correct controller has no choice in what it
// calls: either one change happens to each parent with its children, or the
// controller sees many changes at once. A phase ends when the children are as
// they should be, and a later change of another parent, the sentinel, has
// passed through the informers and the queue without any other call in between.
// In these phases:
//
//   - The reflectors of each resource make the same sequence of requests: path,
//     parameters, status. Versions are compared by origin (none, 0, the last
//     one that this reflector has read), timeouts by range. While the API
//     server is down, requests without a response do not count.
//   - The controller makes the same multiset of calls: verb, path, body,
//     status, without uids, versions and times. Discovery does not count.
//
// In the last phase all changes come at once while watches break. Which changes
// a controller sees as one, and so what it calls, then depends on timing. For
// each engine, given the changes in its own run:
//
//   - No child is created, deleted or updated more often than its parent or the
//     parent's children were changed.
//   - The values written to a child never decrease.
//   - Reflectors make no kind of request that client-go's make in no phase.
//
// In the end both namespaces hold the same objects, apart from uids, versions
// and times.
//
// Compare restarts the API server of cp, so cp should belong to the test.
func Compare(t *testing.T, cp *controlplane.Cluster, s Subject, seed int64) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	barrier := newBarrier(len(s.Engines))
	var records [len(s.Engines)]*record
	var running sync.WaitGroup
	for i, engine := range s.Engines {
		running.Go(func() {
			r, err := s.run(ctx, cp, barrier, engine, seed)
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
