package codec_test

import (
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "sigs.k8s.io/json"

	"github.com/tidings-io/tidings/internal/codec"
)

// TestManagedFieldsAreCutOut checks that cutting managedFields out before decoding is
// the same as dropping them afterwards, wherever in the metadata they are.
func TestManagedFieldsAreCutOut(t *testing.T) {
	gvk := corev1.SchemeGroupVersion.WithKind("ConfigMap")
	dropping, err := codec.For[*unstructured.Unstructured](gvk, codec.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, raw := range []string{
		`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","managedFields":[{"manager":"x","fieldsV1":{"f:data":{}}}],"uid":"u"},"data":{"managedFields":"kept"}}`,
		`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"managedFields":[],"name":"a"}}`,
		`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a" , "managedFields" : [ {"manager":"x"} ] } }`,
		`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"managedFields":null}}`,
		`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"managedFields":[{"manager":"}],"}]},"data":{"x":"y"}}`,
		`{"kind":"ConfigMap","apiVersion":"v1","data":{"metadata":"{\"managedFields\":1}"},"metadata":{"name":"b"}}`,
		`{"kind":"ConfigMap","apiVersion":"v1","data":{"managedFields":"no metadata"}}`,
	} {
		got, err := dropping.Decode(codec.JSON, []byte(raw))
		if err != nil {
			t.Errorf("%s: %v", raw, err)
			continue
		}
		want := &unstructured.Unstructured{}
		if err := utiljson.UnmarshalCaseSensitivePreserveInts([]byte(raw), &want.Object); err != nil {
			t.Fatal(err)
		}
		if _, ok := want.Object["metadata"]; ok {
			want.SetManagedFields(nil)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s was decoded as\n%v, not\n%v", raw, got, want)
		}
	}
	pods, err := codec.For[*corev1.Pod](corev1.SchemeGroupVersion.WithKind("Pod"), codec.Options{})
	if err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "n", UID: "u", ResourceVersion: "7", Labels: map[string]string{"a": "b"}, ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m", FieldsV1: &metav1.FieldsV1{}}, {Manager: "o"}}},
		Spec:       corev1.PodSpec{NodeName: "n1"},
	}
	wire, err := pod.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	got, err := pods.Decode(codec.Protobuf, wire)
	if err != nil {
		t.Fatal(err)
	}
	var want corev1.Pod
	if err := want.Unmarshal(wire); err != nil {
		t.Fatal(err)
	}
	want.ManagedFields = nil
	want.Kind, want.APIVersion = "Pod", "v1"
	if !reflect.DeepEqual(got, &want) {
		t.Errorf("decoded as\n%v, not\n%v", got, &want)
	}
}
