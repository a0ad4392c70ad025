package relations

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"
)

// broken are objects with what is wrong with them: message, and field.
var broken = []struct{ object, message, field string }{
	{`"kind":"Pod","apiVersion":"v1","status":{"conditions":[{"type":"PodScheduled","status":"False","reason":"Unschedulable","message":"0/3 nodes are available"}]}`,
		"not scheduled: Unschedulable: 0/3 nodes are available", "status.conditions[PodScheduled]"},
	{`"kind":"Pod","apiVersion":"v1","status":{"phase":"Failed","reason":"Evicted","message":"The node was low on resource: memory."}`,
		"Failed: Evicted: The node was low on resource: memory.", "status.phase"},
	{`"kind":"Pod","apiVersion":"v1","status":{"containerStatuses":[{"name":"a","state":{"running":{}},"ready":true},{"name":"b","state":{"waiting":{"reason":"ImagePullBackOff","message":"no such image"}}}]}`,
		"container b: ImagePullBackOff: no such image", "status.containerStatuses[b].state.waiting"},
	{`"kind":"Pod","apiVersion":"v1","status":{"containerStatuses":[{"name":"a","state":{"waiting":{"reason":"CrashLoopBackOff"}},"lastState":{"terminated":{"exitCode":2,"reason":"Error"}}}]}`,
		"container a ended with exit code 2: Error", "status.containerStatuses[a].lastState.terminated"},
	{`"kind":"Pod","apiVersion":"v1","status":{"containerStatuses":[{"name":"a","state":{"running":{}},"ready":false}]}`,
		"container a runs and is not ready", "status.containerStatuses[a].ready"},
	{`"kind":"Pod","apiVersion":"v1","status":{"initContainerStatuses":[{"name":"i","state":{"terminated":{"exitCode":1,"reason":"Error"}}}]}`,
		"container i ended with exit code 1: Error", "status.initContainerStatuses[i].state.terminated"},
	{`"kind":"Pod","apiVersion":"v1","status":{"containerStatuses":[{"name":"a","state":{"waiting":{"reason":"CreateContainerConfigError","message":"configmap \"web\" not found"}}}]}`,
		`container a: CreateContainerConfigError: configmap "web" not found`, "status.containerStatuses[a].state.waiting"},
	{`"kind":"Deployment","apiVersion":"apps/v1","spec":{"replicas":1},"status":{"readyReplicas":1,"conditions":[{"type":"Progressing","status":"False","reason":"ProgressDeadlineExceeded","message":"has timed out"}]}`,
		"Progressing is False: ProgressDeadlineExceeded: has timed out", "status.conditions[Progressing]"},
	{`"kind":"ReplicaSet","apiVersion":"apps/v1","spec":{"replicas":0},"status":{"conditions":[{"type":"ReplicaFailure","status":"True","reason":"FailedCreate","message":"exceeded quota: q"}]}`,
		"ReplicaFailure is True: FailedCreate: exceeded quota: q", "status.conditions[ReplicaFailure]"},
	{`"kind":"StatefulSet","apiVersion":"apps/v1","status":{}`, "0 of 1 are ready", "status.readyReplicas"},
	{`"kind":"DaemonSet","apiVersion":"apps/v1","status":{"desiredNumberScheduled":3,"numberReady":2}`, "2 of 3 are ready", "status.numberReady"},
	{`"kind":"Job","apiVersion":"batch/v1","status":{"conditions":[{"type":"Failed","status":"True","reason":"BackoffLimitExceeded"}]}`,
		"Failed is True: BackoffLimitExceeded", "status.conditions[Failed]"},
	{`"kind":"PersistentVolumeClaim","apiVersion":"v1","status":{"phase":"Pending"}`, "Pending", "status.phase"},
	{`"kind":"PersistentVolume","apiVersion":"v1","status":{"phase":"Failed","reason":"Recycle","message":"no"}`, "Failed: Recycle: no", "status.phase"},
	{`"kind":"Node","apiVersion":"v1","status":{"conditions":[{"type":"Ready","status":"Unknown","reason":"NodeStatusUnknown"}]}`, "Ready is Unknown: NodeStatusUnknown", "status.conditions[Ready]"},
	{`"kind":"Node","apiVersion":"v1","status":{"conditions":[{"type":"MemoryPressure","status":"True"}]}`, "MemoryPressure is True", "status.conditions[MemoryPressure]"},
	{`"kind":"Node","apiVersion":"v1","status":{"conditions":[{"type":"DiskPressure","status":"True"}]}`, "DiskPressure is True", "status.conditions[DiskPressure]"},
	{`"kind":"Node","apiVersion":"v1","status":{"conditions":[{"type":"PIDPressure","status":"True"}]}`, "PIDPressure is True", "status.conditions[PIDPressure]"},
	{`"kind":"Node","apiVersion":"v1","status":{"conditions":[{"type":"NetworkUnavailable","status":"True"}]}`, "NetworkUnavailable is True", "status.conditions[NetworkUnavailable]"},
	{`"kind":"HorizontalPodAutoscaler","apiVersion":"autoscaling/v2","status":{"conditions":[{"type":"AbleToScale","status":"False","reason":"FailedGetScale"}]}`, "AbleToScale is False: FailedGetScale", "status.conditions[AbleToScale]"},
	{`"kind":"HorizontalPodAutoscaler","apiVersion":"autoscaling/v2","status":{"conditions":[{"type":"ScalingActive","status":"False"}]}`, "ScalingActive is False", "status.conditions[ScalingActive]"},
	{`"kind":"APIService","apiVersion":"apiregistration.k8s.io/v1","status":{"conditions":[{"type":"Available","status":"False","reason":"ServiceNotFound"}]}`, "Available is False: ServiceNotFound", "status.conditions[Available]"},
	{`"kind":"CustomResourceDefinition","apiVersion":"apiextensions.k8s.io/v1","status":{"conditions":[{"type":"Established","status":"False"}]}`, "Established is False", "status.conditions[Established]"},
	{`"kind":"ResourceQuota","apiVersion":"v1","status":{"hard":{"pods":"5","cpu":"2"},"used":{"pods":"5","cpu":"1"}}`, "all 5 of pods are used", "status.used[pods]"},
	{`"kind":"Service","apiVersion":"v1","spec":{"type":"LoadBalancer"},"status":{"loadBalancer":{}}`, "the load balancer has no address yet", "status.loadBalancer"},
	{`"kind":"Event","apiVersion":"v1","type":"Warning","message":"Back-off"`, "Back-off", "message"},
	{`"kind":"Certificate","apiVersion":"cert-manager.io/v1","status":{"notAfter":"2026-01-02T03:04:05Z"}`, "the certificate expired at 2026-01-02T03:04:05Z", "status.notAfter"},
	{`"kind":"Secret","apiVersion":"v1","type":"kubernetes.io/tls","data":{"tls.crt":"` + certificateUntil(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)) + `","tls.key":"bm8="}`,
		"the certificate expired at 2026-01-02T03:04:05Z", `data["tls.crt"]`},
	{`"kind":"Database","apiVersion":"example.com/v1","status":{"conditions":[{"type":"Ready","status":"False","reason":"NoDisk"}]}`, "Ready is False: NoDisk", "status.conditions[Ready]"},
	{`"kind":"ConfigMap","apiVersion":"v1","metadata":{"deletionTimestamp":"2026-11-22T10:00:00Z","finalizers":["example.com/wait"]}`,
		"being deleted since 2026-11-22T10:00:00Z, waits for example.com/wait", "metadata.finalizers"},
}

// certificateUntil returns a certificate that expires at a time, as it is in a Secret.
func certificateUntil(until time.Time) string {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: until.Add(-time.Hour), NotAfter: until}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		panic(err)
	}
	return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

func TestRules(t *testing.T) {
	for _, b := range broken {
		wrong := NewObject([]byte("{" + b.object + "}")).Wrong(time.Now())
		if len(wrong) == 0 || wrong[len(wrong)-1] != (Finding{b.message, b.field}) {
			t.Errorf("%s: %+v", b.object, wrong)
		}
	}
	for i, r := range rules {
		used := false
		for _, b := range broken {
			o := NewObject([]byte("{" + b.object + "}"))
			if name := kindName(o.APIVersion, o.Kind); r.kinds == "" || r.kinds == "*" || strings.Contains(" "+r.kinds+" ", " "+name+" ") {
				r.find(o, time.Now(), func(string, string, ...any) { used = true })
			}
		}
		if !used {
			t.Errorf("rule %d, for %q, has no test", i, r.kinds)
		}
	}
}

// No rule, no claim.
func TestNothingIsWrongWith(t *testing.T) {
	for _, object := range []string{
		`"kind":"Pod","apiVersion":"v1","status":{"phase":"Running","conditions":[{"type":"PodScheduled","status":"True"}],"containerStatuses":[{"name":"a","state":{"running":{}},"ready":true,"lastState":{"terminated":{"exitCode":1}}}]}`,
		`"kind":"Pod","apiVersion":"v1","status":{"phase":"Pending","containerStatuses":[{"name":"a","state":{"waiting":{"reason":"ContainerCreating"}}}]}`,
		`"kind":"Pod","apiVersion":"v1","status":{"phase":"Succeeded","containerStatuses":[{"name":"a","state":{"terminated":{"exitCode":0}}}]}`,
		`"kind":"Deployment","apiVersion":"apps/v1","spec":{"replicas":0},"status":{}`,
		`"kind":"Deployment","apiVersion":"example.com/v1","spec":{"replicas":3},"status":{"readyReplicas":1}`,
		`"kind":"PersistentVolumeClaim","apiVersion":"v1","status":{"phase":"Bound"}`,
		`"kind":"Event","apiVersion":"v1","type":"Normal","message":"Started"`,
		`"kind":"ResourceQuota","apiVersion":"v1","status":{"hard":{"pods":"0"},"used":{"pods":"0"}}`,
		`"kind":"Secret","apiVersion":"v1","type":"kubernetes.io/tls","data":{"tls.crt":"` + certificateUntil(time.Now().Add(time.Hour)) + `"}`,
		`"kind":"Secret","apiVersion":"v1","type":"Opaque","data":{"tls.crt":"` + certificateUntil(time.Now().Add(-time.Hour)) + `"}`,
		`"kind":"Secret","apiVersion":"v1","type":"kubernetes.io/tls","data":{"tls.crt":"AAAA"}`,
		`"kind":"Certificate","apiVersion":"cert-manager.io/v1","status":{"notAfter":"soon"}`,
		`"kind":"Lease","apiVersion":"coordination.k8s.io/v1","status":{"conditions":[{"type":"Ready","status":"False"}]}`,
		`"kind":"Pod","apiVersion":"v1","status":{"containerStatuses":"x","conditions":{"type":7}}`,
		`"kind":7,"apiVersion":["a"],"metadata":"x","status":null`,
	} {
		if wrong := NewObject([]byte("{" + object + "}")).Wrong(time.Now()); wrong != nil {
			t.Errorf("%s: %+v", object, wrong)
		}
	}
}

func TestFindingsAreBounded(t *testing.T) {
	var containers []string
	for i := range 1000 {
		containers = append(containers, fmt.Sprintf(`{"name":"c%d","state":{"waiting":{"reason":"CrashLoopBackOff","message":%q}}}`, i, strings.Repeat("é", 10_000)))
	}
	wrong := NewObject([]byte(`{"kind":"Pod","apiVersion":"v1","status":{"containerStatuses":[` + strings.Join(containers, ",") + `]}}`)).Wrong(time.Now())
	size := 0
	for _, f := range wrong {
		size += len(f.Message)
	}
	if len(wrong) == 0 || size > 10_000 {
		t.Errorf("%d findings of %d bytes", len(wrong), size)
	}
}

// FuzzObject checks that no object makes the rules and the relations fail.
func FuzzObject(f *testing.F) {
	for _, b := range broken {
		f.Add([]byte("{" + b.object + "}"))
	}
	f.Add([]byte(`{"kind":"Pod","apiVersion":"v1","spec":{"volumes":[{"configMap":{"name":"a"}},{"projected":{"sources":[{"secret":{"name":"b"}}]}}],"containers":[{"envFrom":[{"configMapRef":{"name":"c"}}]}]}}`))
	f.Add([]byte(`{"kind":"HTTPRoute","apiVersion":"gateway.networking.k8s.io/v1","spec":{"parentRefs":[{"name":"g","kind":"","group":""}],"rules":[{"backendRefs":[{"name":"s","namespace":"n"}]}]}}`))
	f.Add([]byte(`{"kind":"NetworkPolicy","apiVersion":"networking.k8s.io/v1","spec":{"podSelector":{"matchExpressions":[{"key":"a","operator":"In","values":["b"]}]}}}`))
	f.Add([]byte(`{"kind":"Event","apiVersion":"v1","message":"exceeded quota: q, requested: User \"system:serviceaccount:a:b\" cannot list resource \"pods\""}`))
	f.Fuzz(func(t *testing.T, json []byte) {
		o := NewObject(json)
		o.Wrong(time.Now())
		o.Owners()
		o.State(o.created())
		o.targets(func(relation, target) {})
	})
}
