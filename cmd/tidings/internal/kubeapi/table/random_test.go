package table_test

import (
	"encoding/json"
	"fmt"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"maps"
	"math/rand/v2"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/tidings-io/tidings/cmd/tidings/internal/kubeapi/table"
	"github.com/tidings-io/tidings/internal/controlplane"
)

// words are the strings in random objects. Many have a meaning.
var words = strings.Fields(`True False Unknown Ready Initialized PodScheduled SchedulingGated Completed Error a b web
	Complete Failed Succeeded Suspended FailureTarget SuccessCriteriaMet Running Pending NodeLost Evicted ClusterIP NodePort
	LoadBalancer ExternalName TCP Always Resource Pods Object External ContainerResource cpu memory 10.0.0.1 fd00::1
	InternalIP ExternalIP ReadWriteOnce ReadOnlyMany ReadWriteMany ReadWriteOncePod In NotIn Exists DoesNotExist
	Approved Denied Issued Dangling Available Healthy User Group ServiceAccount Queue Reject Limited Exempt
	PodGroupScheduled DisruptionTarget PodInitializing CrashLoopBackOff example.com apps/v1 v1 Deployment
	node-role.kubernetes.io/worker node-role.kubernetes.io/ kubernetes.io/role limits.cpu requests.memory storage
	volume.beta.kubernetes.io/storage-class storageclass.kubernetes.io/is-default-class true ingressclass.kubernetes.io/is-default-class`)

// filler makes objects of any type. They need not be valid.
type filler struct{ *rand.Rand }

var (
	typeTime       = reflect.TypeFor[metav1.Time]()
	typeMicroTime  = reflect.TypeFor[metav1.MicroTime]()
	typeQuantity   = reflect.TypeFor[resource.Quantity]()
	typeIntOrStr   = reflect.TypeFor[intstr.IntOrString]()
	typeRaw        = reflect.TypeFor[runtime.RawExtension]()
	typeObjectMeta = reflect.TypeFor[metav1.ObjectMeta]()
	typeFields     = reflect.TypeFor[metav1.FieldsV1]()
)

// randomTime returns a time in the last ten years, to the second.
func (f filler) randomTime() time.Time {
	spans := []time.Duration{time.Minute, 10 * time.Minute, 3 * time.Hour, 48 * time.Hour, 30 * 24 * time.Hour, 10 * 365 * 24 * time.Hour}
	return time.Now().Add(-time.Duration(f.Int64N(int64(spans[f.IntN(len(spans))])))).Truncate(time.Second)
}

func (f filler) fill(v reflect.Value, depth int) {
	switch v.Type() {
	case typeTime:
		v.Set(reflect.ValueOf(metav1.NewTime(f.randomTime())))
		return
	case typeMicroTime:
		v.Set(reflect.ValueOf(metav1.NewMicroTime(f.randomTime())))
		return
	case typeQuantity:
		v.Set(reflect.ValueOf(*resource.NewMilliQuantity(f.Int64N(100_000), resource.DecimalSI)))
		return
	case typeIntOrStr:
		v.Set(reflect.ValueOf([]intstr.IntOrString{intstr.FromInt32(f.Int32N(9)), intstr.FromString("20%")}[f.IntN(2)]))
		return
	case typeRaw, typeFields:
		return
	case typeObjectMeta:
		if depth > 1 { // that of a template
			v.Set(reflect.ValueOf(metav1.ObjectMeta{Labels: f.pairs()}))
		}
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		if depth < 12 && f.IntN(3) > 0 {
			v.Set(reflect.New(v.Type().Elem()))
			f.fill(v.Elem(), depth+1)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() && v.Type().Field(i).Name != "TypeMeta" {
				f.fill(v.Field(i), depth+1)
			}
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			v.SetBytes([]byte(f.word()))
			return
		}
		for n := f.IntN(5); n > 0 && depth < 12; n-- {
			e := reflect.New(v.Type().Elem()).Elem()
			f.fill(e, depth+1)
			v.Set(reflect.Append(v, e))
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for n := f.IntN(4); n > 0; n-- {
			key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			f.fill(key, depth+1)
			f.fill(value, depth+1)
			v.SetMapIndex(key, value)
		}
	case reflect.String:
		if f.IntN(8) > 0 {
			v.SetString(f.word())
		}
	case reflect.Int32, reflect.Int64, reflect.Int:
		v.SetInt(int64(f.IntN(5)))
	case reflect.Bool:
		v.SetBool(f.IntN(2) == 0)
	}
}

// repair changes an autoscaler so that upstream's printer does not panic: each metric has
// the source of its type.
func (f filler) repair(o runtime.Object) {
	a, ok := o.(*autoscalingv2.HorizontalPodAutoscaler)
	if !ok {
		return
	}
	for i := range a.Spec.Metrics {
		m := &a.Spec.Metrics[i]
		sources := map[autoscalingv2.MetricSourceType]any{
			autoscalingv2.ExternalMetricSourceType: &m.External, autoscalingv2.PodsMetricSourceType: &m.Pods,
			autoscalingv2.ObjectMetricSourceType: &m.Object, autoscalingv2.ResourceMetricSourceType: &m.Resource,
			autoscalingv2.ContainerResourceMetricSourceType: &m.ContainerResource,
		}
		kinds := slices.Sorted(maps.Keys(sources))
		m.Type = kinds[f.IntN(len(kinds))]
		for field := reflect.ValueOf(sources[m.Type]).Elem(); field.IsNil(); {
			f.fill(field, 3)
		}
		if m.Resource != nil && f.IntN(2) == 0 {
			m.Resource.Name = corev1.ResourceCPU
		}
	}
}

func (f filler) word() string { return words[f.IntN(len(words))] }

func (f filler) pairs() map[string]string {
	out := map[string]string{}
	for range f.IntN(4) {
		out[f.word()] = f.word()
	}
	return out
}

func (f filler) metadata(namespace string, i int) metav1.ObjectMeta {
	m := metav1.ObjectMeta{
		Name: fmt.Sprintf("random-%03d", i), Namespace: namespace, UID: "00000000-0000-0000-0000-000000000000",
		CreationTimestamp: metav1.NewTime(f.randomTime()), Labels: f.pairs(), Annotations: f.pairs(),
	}
	if f.IntN(4) == 0 {
		t := metav1.NewTime(f.randomTime())
		m.DeletionTimestamp = &t
	}
	for range f.IntN(3) {
		controller := f.IntN(2) == 0
		m.OwnerReferences = append(m.OwnerReferences, metav1.OwnerReference{
			APIVersion: []string{"v1", "apps/v1"}[f.IntN(2)], Kind: "Deployment", Name: f.word(), Controller: &controller,
		})
	}
	return m
}

// keys are the folders in etcd of resources that have another folder than their name, and
// "" for those whose random objects the API server itself would act on.
var keys = map[string]string{
	"services": "services/specs", "endpoints": "services/endpoints", "nodes": "minions", "replicationcontrollers": "controllers", "ingresses": "ingress",
	"componentstatuses": "", "customresourcedefinitions": "", "apiservices": "", "servicecidrs": "", "ipaddresses": "",
}

func TestCellsOfRandomObjects(t *testing.T) {
	const objects = 60
	cp, u := connect(t)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	namespace := fmt.Sprintf("random-%x", seed)
	made, err := json.Marshal(map[string]any{"metadata": map[string]any{"name": namespace}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := u.do(t.Context(), http.MethodPost, "/api/v1/namespaces", "application/json", made); err != nil {
		t.Fatal(err)
	}
	written := map[string]bool{}
	for _, r := range u.resources(t, cp) {
		key, special := keys[r.resource]
		if !special {
			key = r.resource
		}
		if key == "" || !scheme.Scheme.Recognizes(r.GroupVersionKind) || r.Group == "extensions" {
			continue
		}
		t.Run(r.String(), func(t *testing.T) {
			f := filler{rand.New(rand.NewPCG(seed, 1))}
			// Each version writes its own objects, and all are read in every version.
			for i := range objects {
				if written[key] && i > objects/4 {
					break
				}
				o, err := scheme.Scheme.New(r.GroupVersionKind)
				if err != nil {
					t.Fatal(err)
				}
				f.fill(reflect.ValueOf(o).Elem(), 0)
				f.repair(o)
				write(t, cp, f, r, key, namespace, i, o)
			}
			written[key] = true
			compare(t, u, r, namespace, objects/4)
		})
	}
}

func write(t *testing.T, cp *controlplane.Cluster, f filler, r served, key, namespace string, i int, o runtime.Object) {
	t.Helper()
	meta := reflect.ValueOf(o).Elem().FieldByName("ObjectMeta")
	if !r.namespaced {
		namespace = ""
	}
	m := f.metadata(namespace, i)
	m.Name += "-" + r.Version
	meta.Set(reflect.ValueOf(m))
	o.GetObjectKind().SetGroupVersionKind(r.GroupVersionKind)
	value, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	path := "/registry/" + key + "/"
	if namespace != "" {
		path += namespace + "/"
	}
	if err := cp.WriteEtcd(t.Context(), path+m.Name, value); err != nil {
		t.Fatal(err)
	}
}

// compare compares the rows of a list with ours, and that of one object.
func compare(t *testing.T, u *upstream, r served, namespace string, least int) {
	t.Helper()
	want, asked, answered := u.table(t, r.path(namespace))
	if len(want.Rows) < least {
		t.Errorf("%d rows of %d that were written", len(want.Rows), least)
	}
	p := table.For(r.GroupVersionKind, nil)
	type one struct {
		row *table.Row
		raw string
	}
	var ours []one
	for _, row := range want.Rows {
		forgive(t, r, p, row)
		if d := difference(p, row, asked, answered); d != "" {
			t.Fatalf("cells, want -, have +\n%s\nof %s", d, row.Object.Raw)
		}
		read, err := p.Row(row.Object.Raw)
		if err != nil {
			t.Fatal(err)
		}
		ours = append(ours, one{read, string(row.Object.Raw)})
	}
	slices.SortStableFunc(ours, func(a, b one) int { return p.Compare(a.row, b.row) })
	for i, row := range want.Rows {
		if string(row.Object.Raw) != ours[i].raw {
			t.Fatalf("row %d is another than upstream's", i)
		}
	}
	var first metav1.PartialObjectMetadata
	if err := json.Unmarshal(want.Rows[0].Object.Raw, &first); err != nil {
		t.Fatal(err)
	}
	single, asked, answered := u.table(t, r.path(namespace)+"/"+first.Name)
	forgive(t, r, p, single.Rows[0])
	if d := difference(p, single.Rows[0], asked, answered); d != "" || len(single.Rows) != 1 {
		t.Errorf("of a single object, want -, have +\n%s", d)
	}
}

// forgive copies from our row what cannot be the same upstream: version 1 of autoscalers
// cannot represent all metrics. TestCells compares those that it can.
func forgive(t *testing.T, r served, p *table.Printer, row metav1.TableRow) {
	t.Helper()
	if r.GroupVersion().String() != "autoscaling/v1" {
		return
	}
	cells, err := p.Cells(row.Object.Raw, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	row.Cells[2] = cells[2]
}
