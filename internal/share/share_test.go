package share_test

import (
	"math/rand"
	"reflect"
	"runtime"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	"k8s.io/apimachinery/pkg/api/resource"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/randfill"

	"github.com/tidings-io/tidings/internal/samplepods"
	"github.com/tidings-io/tidings/internal/share"
)

type message interface {
	Marshal() ([]byte, error)
	Unmarshal([]byte) error
}

// genericFuncs fill fields that cannot have arbitrary values.
func genericFuncs(serializer.CodecFactory) []any {
	return []any{
		func(q *resource.Quantity, c randfill.Continue) {
			*q = *resource.NewQuantity(c.Int63n(1000), resource.DecimalSI)
		},
		func(r *apiruntime.RawExtension, c randfill.Continue) {
			r.Raw = []byte(`{"random":"` + c.String(0) + `"}`)
		},
	}
}

// TestEveryBuiltInKindStaysEqual shares random objects of every kind, each several times
// so that their parts are found again, and compares them with objects that are not
// shared.
func TestEveryBuiltInKindStaysEqual(t *testing.T) {
	table := share.New()
	kinds := 0
	for gvk, typ := range scheme.Scheme.AllKnownTypes() {
		if gvk.Version == "__internal" {
			continue
		}
		if _, ok := reflect.New(typ).Interface().(message); !ok {
			continue
		}
		kinds++
		fill := fuzzer.FuzzerFor(fuzzer.MergeFuzzerFuncs(metafuzzer.Funcs, genericFuncs), rand.NewSource(int64(kinds)), serializer.NewCodecFactory(scheme.Scheme))
		for range 3 {
			object := reflect.New(typ)
			fill.Fill(object.Interface())
			check(t, table, gvk, object)
		}
	}
	if kinds < 100 {
		t.Fatalf("only %d kinds were tested", kinds)
	}
}

// check encodes object and decodes it several times, sharing all results but one.
func check(t *testing.T, table *share.Table, gvk schema.GroupVersionKind, object reflect.Value) {
	t.Helper()
	wire, err := object.Interface().(message).Marshal()
	if err != nil {
		return // a random value that has no encoding
	}
	decode := func() any {
		o := reflect.New(object.Type().Elem()).Interface()
		if err := o.(message).Unmarshal(wire); err != nil {
			t.Fatalf("%s: %v", gvk, err)
		}
		return o
	}
	want := decode()
	var shared []any
	for range 4 {
		o := decode()
		table.Object(o)
		shared = append(shared, o)
	}
	for i, got := range shared { // the first ones too, after the last was shared
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("%s differs after sharing, number %d", gvk, i)
		}
		// Encode what was decoded: the order of random maps is not fixed otherwise.
		a, err := got.(message).Marshal()
		if err != nil {
			t.Fatal(err)
		}
		b, err := want.(message).Marshal()
		if err != nil {
			t.Fatal(err)
		}
		if string(a) != string(b) {
			t.Fatalf("%s is encoded otherwise after sharing, number %d", gvk, i)
		}
	}
}

// TestPodsTakeLessMemory also checks that they stay equal.
func TestPodsTakeLessMemory(t *testing.T) {
	const n = 1000
	wires := encode(t, n)
	load := func(table *share.Table) ([]*corev1.Pod, uint64) {
		before := heap()
		pods := make([]*corev1.Pod, n)
		for i, wire := range wires {
			pods[i] = &corev1.Pod{}
			if err := pods[i].Unmarshal(wire); err != nil {
				t.Fatal(err)
			}
			if table != nil {
				table.Object(pods[i])
			}
		}
		return pods, heap() - before
	}
	plain, took := load(nil)
	table := share.New()
	shared, takes := load(table)
	t.Logf("%d bytes a pod instead of %d: %.2f; %d parts are remembered", takes/n, took/n, float64(takes)/float64(took), table.Len())
	if !reflect.DeepEqual(plain, shared) {
		t.Error("a pod differs after sharing")
	}
	if float64(takes) > 0.6*float64(took) {
		t.Errorf("sharing left %d of %d bytes", takes, took)
	}

	runtime.KeepAlive(wires)
}

// encode returns pods as they come over the wire.
func encode(tb testing.TB, n int) (wires [][]byte) {
	for _, pod := range samplepods.Clone(n, 1) {
		wire, err := pod.Marshal()
		if err != nil {
			tb.Fatal(err)
		}
		wires = append(wires, wire)
	}
	return wires
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestConcurrentUse shares the same pods from several goroutines while others
// read them; the race detector is the test.
func TestConcurrentUse(t *testing.T) {
	wires := encode(t, 200)
	table := share.New()
	var wg sync.WaitGroup
	for seed := range int64(4) {
		wg.Go(func() {
			order := rand.New(rand.NewSource(seed))
			for range 400 {
				i := order.Intn(len(wires))
				var pod, want corev1.Pod
				if pod.Unmarshal(wires[i]) != nil || want.Unmarshal(wires[i]) != nil {
					t.Error("a pod cannot be decoded")
				}
				table.Object(&pod)
				for _, c := range pod.Spec.Containers { // what readers do
					for _, q := range c.Resources.Requests {
						_ = q.String()
					}
				}
				for _, v := range pod.Spec.Volumes {
					if v.EmptyDir != nil && v.EmptyDir.SizeLimit != nil {
						_ = v.EmptyDir.SizeLimit.String()
					}
				}
				if !reflect.DeepEqual(pod.Spec.Containers[0].Env, want.Spec.Containers[0].Env) || pod.Name != want.Name {
					t.Error("a pod differs after sharing")
				}
			}
		})
	}
	wg.Wait()
}

func BenchmarkPod(b *testing.B) {
	wires := encode(b, 1000)
	for _, shared := range []bool{false, true} {
		name := "decode"
		if shared {
			name = "decode and share"
		}
		b.Run(name, func(b *testing.B) {
			table := share.New()
			b.ReportAllocs()
			for i := range b.N {
				var pod corev1.Pod
				if err := pod.Unmarshal(wires[i%len(wires)]); err != nil {
					b.Fatal(err)
				}
				if shared {
					table.Object(&pod)
				}
			}
		})
	}
}
