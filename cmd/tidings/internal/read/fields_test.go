package read_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
	"github.com/tidings-io/tidings/cmd/tidings/internal/read"
	"github.com/tidings-io/tidings/internal/controlplane"
)

// real is a mirror of a real control plane, with a namespace of the test's own.
func real(t *testing.T, opts mirror.Options) (*rig, string) {
	t.Helper()
	cp := controlplane.Shared(t)
	r := newRig(t, nil, cp.AdminConfig(), opts)
	t.Cleanup(r.close)
	ns := strings.ToLower(strings.ReplaceAll(t.Name(), "/", "-"))
	r.create("", "namespaces", &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}})
	return r, ns
}

// create makes an object of a core resource, or of the group that "group/resource" names.
func (r *rig) create(ns, resource string, obj runtime.Object) {
	r.Helper()
	r.must(r.request(obj).Post().NamespaceIfScoped(ns, ns != "").Resource(resource).Body(obj).Do(r.ctx).Error())
}

// request is a client for objects like obj.
func (r *rig) request(obj runtime.Object) *rest.RESTClient {
	r.Helper()
	kinds, _, err := scheme.Scheme.ObjectKinds(obj)
	r.must(err)
	config := rest.CopyConfig(r.config)
	gv := kinds[0].GroupVersion()
	config.GroupVersion, config.APIPath = &gv, "/apis"
	if gv.Group == "" {
		config.APIPath = "/api"
	}
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	client, err := rest.RESTClientFor(config)
	r.must(err)
	return client
}

// settle waits until the mirror has reached the present version of the API server.
func (r *rig) settle(q read.Params) {
	r.Helper()
	ctx, cancel := context.WithTimeout(r.ctx, 30*time.Second)
	defer cancel()
	live := q
	live.Source = read.Live
	for ctx.Err() == nil {
		fromServer, _ := r.list(live)
		fromCache, _ := r.list(q)
		if slices.Equal(fromServer, fromCache) {
			return
		}
		select {
		case <-time.After(20 * time.Millisecond): // nothing tells that a cache is where a server is
		case <-ctx.Done():
		}
	}
	r.Fatal("the mirror does not come to where the API server is")
}

// The cache has the same selectable fields as the API server, with the same matches.
func TestFieldSelectorsAreTheAPIServers(t *testing.T) {
	r, ns := real(t, mirror.Options{Resources: []string{mirror.Everything, "secrets"}, Logger: slog.New(slog.DiscardHandler)})
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: ns, Name: name} }
	containers := []corev1.Container{{Name: "c", Image: "i"}}
	for i, spec := range []corev1.PodSpec{
		{Containers: containers},
		{Containers: containers, NodeName: "n1", RestartPolicy: corev1.RestartPolicyNever},
		{Containers: containers, HostNetwork: true, SchedulerName: "other", ServiceAccountName: "sa"},
	} {
		r.create(ns, "pods", &corev1.Pod{ObjectMeta: meta(fmt.Sprint("p", i)), Spec: spec})
	}
	for name, status := range map[string]string{
		"p0": `{"status":{"nominatedNodeName":"n2"}}`,
		"p1": `{"status":{"phase":"Running","podIP":"10.0.0.1","podIPs":[{"ip":"10.0.0.1"}]}}`,
	} {
		r.must(r.request(&corev1.Pod{}).Patch("application/merge-patch+json").Namespace(ns).Resource("pods").Name(name).SubResource("status").
			Body([]byte(status)).Do(r.ctx).Error())
	}
	r.create("", "nodes", &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}})
	r.create("", "nodes", &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n2"}, Spec: corev1.NodeSpec{Unschedulable: true}})
	r.create(ns, "services", &corev1.Service{ObjectMeta: meta("headless"), Spec: corev1.ServiceSpec{ClusterIP: "None", Ports: []corev1.ServicePort{{Port: 80}}}})
	r.create(ns, "services", &corev1.Service{ObjectMeta: meta("external"), Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "example.com"}})
	r.create(ns, "secrets", &corev1.Secret{ObjectMeta: meta("s"), Type: corev1.SecretTypeBasicAuth, StringData: map[string]string{"username": "u"}})
	r.create(ns, "replicationcontrollers", &corev1.ReplicationController{ObjectMeta: meta("rc"), Spec: corev1.ReplicationControllerSpec{
		Selector: map[string]string{"a": "b"},
		Template: &corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}}, Spec: corev1.PodSpec{Containers: containers}},
	}})
	r.create(ns, "jobs", &batchv1.Job{ObjectMeta: meta("j"), Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: containers, RestartPolicy: corev1.RestartPolicyNever}}}})
	involved := corev1.ObjectReference{Kind: "Pod", Namespace: ns, Name: "p1", UID: "u", APIVersion: "v1", ResourceVersion: "7", FieldPath: "spec"}
	r.create(ns, "events", &corev1.Event{ObjectMeta: meta("e1"), InvolvedObject: involved, Reason: "Because", Type: "Normal", Source: corev1.EventSource{Component: "kubelet"}})
	r.create(ns, "events", &eventsv1.Event{ObjectMeta: meta("e2"), Regarding: involved, Reason: "Why", Type: "Warning", ReportingController: "me", ReportingInstance: "me-1", Action: "a", EventTime: metav1.NowMicro()})

	checked := 0
	for _, name := range []string{"pods", "nodes", "namespaces", "services", "secrets", "replicationcontrollers", "events", "events.events.k8s.io",
		"jobs", "deployments", "configmaps", "certificatesigningrequests", "resourceslices", "leases", "clusterroles", "endpointslices"} {
		q := r.query(name)
		r.settle(q)
		values := []string{"", "n1", "n2", "p1", ns, "true", "false", "Running", "Pending", "Active", "Never", "Always", "other", "sa", "default",
			"10.0.0.1", "None", "ClusterIP", "ExternalName", "kubernetes.io/basic-auth", "0", "1", "Pod", "u", "v1", "7", "spec", "Because", "Why", "Normal", "Warning", "kubelet", "me"}
		bound, err := r.bind(q, read.List)
		r.must(err)
		for _, field := range read.FieldNames(bound.Resource()) {
			for _, value := range values {
				for _, op := range []string{"=", "!="} {
					q := q
					q.Fields = fieldSelector(t, field+op+value)
					var fromCache, fromServer []string
					for range 3 { // the API server renews its lease now and then
						q.Source = read.Cache
						fromCache, _ = r.list(q)
						q.Source = read.Live
						if fromServer, _ = r.list(q); slices.Equal(fromCache, fromServer) {
							break
						}
						r.settle(q)
					}
					same(t, name+" "+q.Fields.String(), fromCache, fromServer)
					checked++
				}
			}
		}
		// The API server has no other selectable fields.
		for _, field := range []string{"metadata.namespace", "metadata.uid", "metadata.labels", "spec.nodeName", "spec.host", "status.phase", "spec.type", "type", "reason", "source",
			"name", "status.successful", "status.replicas", "spec.unschedulable", "spec.signerName", "spec.driver", "reportingController", "involvedObject.name", "regarding.name"} {
			q := q
			q.Fields = fieldSelector(t, field+"=x")
			err := r.listErr(q)
			status := r.request(&corev1.Pod{}).Get().AbsPath(path(q)).Param("fieldSelector", field+"=x").Do(r.ctx).Error()
			if (err == nil) != (status == nil) {
				t.Errorf("%s by %s: the cache says %v, the API server %v", name, field, err, status)
			}
		}
	}
	if checked < 1000 {
		t.Errorf("only %d selections were compared", checked)
	}
}

func path(q read.Params) string {
	gvr := q.Resource
	if gvr.Group == "" {
		return "/api/" + gvr.Version + "/" + gvr.Resource
	}
	return "/apis/" + gvr.Group + "/" + gvr.Version + "/" + gvr.Resource
}
