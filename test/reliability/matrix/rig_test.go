package matrix

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/tidings-io/tidings/internal/controlplane"
)

// kind is a kind of objects that rows are about.
type kind struct {
	group, version, apiVersion, kind, plural, field string
	custom                                          bool
}

var configMaps = kind{version: "v1", apiVersion: "v1", kind: "ConfigMap", plural: "configmaps", field: "data"}

// widgets are custom resources of a group of the row's own.
func widgets(row string) kind {
	group := row + ".example.com"
	return kind{group: group, version: "v1", apiVersion: group + "/v1", kind: "Widget", plural: "widgets", field: "spec", custom: true}
}

func (k kind) collection(namespace string) string {
	if k.group == "" {
		return fmt.Sprintf("/api/%s/namespaces/%s/%s", k.version, namespace, k.plural)
	}
	return fmt.Sprintf("/apis/%s/namespaces/%s/%s", k.apiVersion, namespace, k.plural)
}

// everywhere is the collection of all namespaces.
func (k kind) everywhere() string {
	return strings.Replace(k.collection("x"), "/namespaces/x", "", 1)
}

func (k kind) full() string {
	return strings.TrimSuffix(k.plural+"."+k.group, ".")
}

func (k kind) groupName() string {
	if k.group == "" {
		return "core"
	}
	return k.group
}

const crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

// define makes the definition of a custom kind and waits until it is served.
func (r *rig) define(k kind) {
	r.Helper()
	r.admin.do("POST", crds, fmt.Sprintf(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":%q},"spec":{
		"group":%q,"scope":"Namespaced","names":{"plural":%q,"singular":"widget","kind":%q},
		"versions":[{"name":%q,"served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}]}}`,
		k.full(), k.group, k.plural, k.kind, k.version))
	eventually(r, time.Minute, "the new resource is served", func() bool {
		code, _, err := r.admin.try("GET", k.collection(r.namespace), "")
		return err == nil && code == 200
	})
}

func (r *rig) undefine(k kind) {
	r.Helper()
	r.admin.do("DELETE", crds+"/"+k.full(), "")
	eventually(r, time.Minute, "the resource is no longer served", func() bool {
		code, _, err := r.admin.try("GET", k.collection(r.namespace), "")
		return err == nil && code == 404
	})
}

// rig is one run of one row.
type rig struct {
	testing.TB
	ctx       context.Context
	cancel    context.CancelFunc
	row       *row
	cluster   *controlplane.Cluster
	upstream  *rest.Config // as the lines use it
	admin     *api
	namespace string
	kind      kind
	churn     *churn
	lines     []*line

	token, tokenFile string // of rows whose token is in a file
}

var namespaces atomic.Int64

// planes are the control planes of rows that do something to them.
var planes ownPlanes

type ownPlanes struct {
	testing.TB // runs for longer than the rows
	mu         sync.Mutex
	planes     map[string]*ownPlane
}

type ownPlane struct {
	sync.Mutex
	cluster *controlplane.Cluster
}

func (o *ownPlanes) of(name string) *ownPlane {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.planes[name] == nil {
		if o.planes == nil {
			o.planes = map[string]*ownPlane{}
		}
		o.planes[name] = &ownPlane{}
	}
	return o.planes[name]
}

// lock waits until nobody else uses a control plane.
func (o *ownPlanes) lock(name string) (unlock func()) {
	plane := o.of(name)
	plane.Lock()
	return plane.Unlock
}

// get returns a control plane that is locked, and starts it if need be.
func (o *ownPlanes) get(tb testing.TB, name string) *controlplane.Cluster {
	tb.Helper()
	plane := o.of(name)
	if plane.cluster != nil {
		return plane.cluster
	}
	// An API server that is stopped ends its watches, and does not wait for them a minute.
	cluster, err := controlplane.Launch(tb.Context(), controlplane.WithAPIServerFlags("--shutdown-watch-termination-grace-period=1s"))
	if err != nil {
		tb.Fatal(err)
	}
	o.Cleanup(func() {
		if err := cluster.Stop(); err != nil {
			o.Error(err)
		}
	})
	plane.cluster = cluster
	return cluster
}

func newRig(t *testing.T, row *row) *rig {
	t.Helper()
	r := &rig{TB: t, row: row, kind: configMaps}
	if row.Own != "" {
		r.cluster = planes.get(t, row.Own)
	} else {
		r.cluster = controlplane.Shared(t)
	}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	r.upstream = r.cluster.AdminConfig()
	r.admin = newAPI(t, r.cluster.AdminConfig())
	r.namespace = fmt.Sprintf("fault-%d", namespaces.Add(1))
	r.admin.do("POST", "/api/v1/namespaces", fmt.Sprintf(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":%q}}`, r.namespace))
	if row.Custom {
		r.kind = widgets(r.namespace)
	}
	if row.SetUp != nil {
		row.SetUp(r)
	}
	r.churn = newChurn(r.admin, r.kind, r.namespace)
	t.Cleanup(func() { // or the mirrors of the other rows would have more and more to list
		if _, _, err := r.admin.try("DELETE", r.kind.collection(r.namespace), ""); err != nil {
			t.Log("clean up: ", err)
		}
	})
	r.lines = []*line{r.library(row.Options...), r.serve()}
	t.Cleanup(func() { // before the proxies go
		r.cancel()
		for _, l := range r.lines {
			l.running.Wait()
		}
	})
	return r
}

func (r *rig) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

// truth is what the API server has: versions and JSON by name.
func (r *rig) truth() (versions, objects map[string]string) {
	r.Helper()
	code, raw, err := r.admin.try("GET", r.kind.collection(r.namespace), "")
	if err != nil || code != 200 {
		r.Fatalf("list the truth: %d %v", code, err)
	}
	var list struct{ Items []json.RawMessage }
	r.must(json.Unmarshal(raw, &list))
	objects = map[string]string{}
	for _, raw := range list.Items {
		var o object
		r.must(json.Unmarshal(raw, &o))
		objects[o.Metadata.Name] = canonical(r, raw)
	}
	return versionsOf(raw), objects
}

// versionsOf are the versions of the objects in a list, by name; nil if it is none.
func versionsOf(list []byte) map[string]string {
	var objects struct{ Items []object }
	if json.Unmarshal(list, &objects) != nil {
		return nil
	}
	out := map[string]string{}
	for _, o := range objects.Items {
		out[o.Metadata.Name] = o.Metadata.ResourceVersion
	}
	return out
}
