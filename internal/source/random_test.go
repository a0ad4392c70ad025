package source_test

import (
	"bytes"
	"io"
	"net/http"
	"reflect"
	"testing"
	"testing/iotest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/tidings-io/tidings/internal/codec"
	"github.com/tidings-io/tidings/internal/source"
)

// A list decoded object by object is equal to what the API machinery's serializers
// decode from the whole, for any objects and any sizes of packets.
func TestListsMatchAPIMachinery(t *testing.T) {
	for _, w := range []wire{wires[0], wires[1]} {
		t.Run(w.name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				list := &corev1.PodList{
					TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"},
					ListMeta: metav1.ListMeta{ResourceVersion: word.Draw(t, "version"), Continue: word.Draw(t, "continue")},
					Items:    rapid.SliceOfN(pods, 0, 5).Draw(t, "items"),
				}
				body := w.encode(list)
				decoded, _, err := w.info().Serializer.Decode(body, nil, nil)
				if err != nil {
					t.Fatal(err)
				}
				want := decoded.(*corev1.PodList)
				for i := range want.Items {
					want.Items[i].TypeMeta = metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}
				}
				c, err := codec.For[*corev1.Pod](corev1.SchemeGroupVersion.WithKind("Pod"), codec.Options{KeepManagedFields: true})
				if err != nil {
					t.Fatal(err)
				}
				server := packets{w.answer(body), rapid.SampledFrom([]func(io.Reader) io.Reader{iotest.OneByteReader, iotest.HalfReader, iotest.DataErrReader}).Draw(t, "packets")}
				var got []corev1.Pod
				result, err := source.NewKube(&http.Client{Transport: server}, nowhere, configMaps, c).List(t.Context(), source.ListOptions{}, func(p *corev1.Pod) error {
					got = append(got, *p)
					return nil
				})
				if err != nil || result.ResourceVersion != list.ResourceVersion || result.Continue != list.Continue || len(got) != len(want.Items) {
					t.Fatalf("%d objects, %+v, %v; not %d, %+v", len(got), result, err, len(want.Items), list.ListMeta)
				}
				for i := range got {
					if !reflect.DeepEqual(got[i], want.Items[i]) {
						t.Fatalf("object %d is\n%v, not\n%v", i, got[i], want.Items[i])
					}
				}
			})
		})
	}
}

// packets delivers an answer in pieces.
type packets struct {
	*answer
	cut func(io.Reader) io.Reader
}

func (p packets) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := p.answer.RoundTrip(req)
	resp.Body = io.NopCloser(p.cut(bytes.NewReader(p.body)))
	return resp, err
}

// pods generates pods with fields of every type: strings, numbers, times, quantities,
// bytes, pointers, lists, maps and a union.
var (
	word  = rapid.OneOf(rapid.StringMatching(`[a-z0-9.-]{0,12}`), rapid.String())
	words = rapid.MapOfN(word, word, 0, 3)
	pods  = rapid.Custom(func(t *rapid.T) corev1.Pod {
		return corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: word.Draw(t, "namespace"), Name: word.Draw(t, "name"), UID: types.UID(word.Draw(t, "uid")), ResourceVersion: word.Draw(t, "version"),
				Generation: rapid.Int64().Draw(t, "generation"), CreationTimestamp: times.Draw(t, "created"),
				DeletionTimestamp: rapid.Ptr(times, true).Draw(t, "deleted"), DeletionGracePeriodSeconds: rapid.Ptr(rapid.Int64(), true).Draw(t, "grace"),
				Labels: words.Draw(t, "labels"), Annotations: words.Draw(t, "annotations"), Finalizers: rapid.SliceOfN(word, 0, 2).Draw(t, "finalizers"),
				OwnerReferences: rapid.SliceOfN(rapid.Custom(func(t *rapid.T) metav1.OwnerReference {
					return metav1.OwnerReference{Kind: word.Draw(t, "kind"), Name: word.Draw(t, "owner"), Controller: rapid.Ptr(rapid.Bool(), true).Draw(t, "controller")}
				}), 0, 2).Draw(t, "owners"),
				ManagedFields: rapid.SliceOfN(rapid.Custom(func(t *rapid.T) metav1.ManagedFieldsEntry {
					return metav1.ManagedFieldsEntry{Manager: word.Draw(t, "manager"), FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{}}`)}
				}), 0, 2).Draw(t, "managed"),
			},
			Spec: corev1.PodSpec{
				NodeName: word.Draw(t, "node"), NodeSelector: words.Draw(t, "selector"), Priority: rapid.Ptr(rapid.Int32(), true).Draw(t, "priority"),
				Containers: rapid.SliceOfN(rapid.Custom(func(t *rapid.T) corev1.Container {
					return corev1.Container{
						Name: word.Draw(t, "container"), Image: word.Draw(t, "image"), Args: rapid.SliceOfN(word, 0, 3).Draw(t, "args"),
						Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": *resource.NewMilliQuantity(rapid.Int64Range(0, 1e6).Draw(t, "cpu"), resource.DecimalSI)}},
					}
				}), 0, 3).Draw(t, "containers"),
				Volumes: rapid.SliceOfN(rapid.Custom(func(t *rapid.T) corev1.Volume {
					return corev1.Volume{Name: word.Draw(t, "volume"), VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}
				}), 0, 2).Draw(t, "volumes"),
			},
			Status: corev1.PodStatus{Message: rapid.String().Draw(t, "message"), StartTime: rapid.Ptr(times, true).Draw(t, "started")},
		}
	})
	times = rapid.Custom(func(t *rapid.T) metav1.Time {
		return metav1.NewTime(time.Unix(rapid.Int64Range(0, 4e9).Draw(t, "seconds"), 0))
	})
)
