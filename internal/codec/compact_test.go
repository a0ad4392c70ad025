package codec_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tidings-io/tidings/internal/codec"
	"github.com/tidings-io/tidings/internal/samplepods"
)

var podKind = schema.GroupVersionKind{Version: "v1", Kind: "Pod"}

// compact returns the codec of a representation and one that keeps it compact.
func compact[T any](t testing.TB, opts codec.Options, transform func(T) (T, error)) (codec.Codec[T], *codec.Compact[T]) {
	t.Helper()
	inner, err := codec.For[T](podKind, opts)
	if err != nil {
		t.Fatal(err)
	}
	return inner, codec.NewCompact(inner, opts, transform, codec.NewPacker())
}

// Compact objects read like those decoded at once, in every representation, and take a
// fraction of the memory.
func TestCompact(t *testing.T) {
	pods := samplepods.Clone(300, 7)
	t.Run("typed, protobuf", func(t *testing.T) {
		reads[*corev1.Pod](t, pods, codec.Protobuf, codec.Options{}, 4)
	})
	t.Run("typed, JSON", func(t *testing.T) { reads[*corev1.Pod](t, pods, codec.JSON, codec.Options{}, 4) })
	t.Run("managedFields kept", func(t *testing.T) {
		reads[*corev1.Pod](t, pods, codec.Protobuf, codec.Options{KeepManagedFields: true}, 3)
	})
	t.Run("unstructured", func(t *testing.T) {
		reads[*unstructured.Unstructured](t, pods, codec.JSON, codec.Options{}, 4)
	})
	t.Run("metadata", func(t *testing.T) {
		reads[*metav1.PartialObjectMetadata](t, pods, codec.Protobuf, codec.Options{}, 4)
	})
}

func reads[T interface {
	GetLabels() map[string]string
	GetName() string
}](t *testing.T, pods []corev1.Pod, format codec.Format, opts codec.Options, times int) {
	inner, c := compact[T](t, opts, nil)
	if c.Accept(true) != inner.Accept(true) || c.Accept(false) != inner.Accept(false) {
		t.Errorf("it accepts %s and %s", c.Accept(true), c.Accept(false))
	}
	var wire, kept int
	var wg sync.WaitGroup
	var mu sync.Mutex
	for part := range 4 { // in parallel, as lists are decoded
		wg.Go(func() {
			for i := part; i < len(pods); i += 4 {
				content, err := json.Marshal(&pods[i])
				if format == codec.Protobuf {
					content, err = pods[i].Marshal()
				}
				if err != nil {
					t.Error(err)
					return
				}
				want, err := inner.Decode(format, content)
				if err != nil {
					t.Error(err)
					return
				}
				r, err := c.Decode(format, content)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				wire, kept = wire+len(content), kept+r.Size()
				mu.Unlock()
				clear(content) // is the caller's again
				if got := c.Expand(r); !reflect.DeepEqual(got, want) {
					t.Errorf("%s is read as\n%+v, not\n%+v", pods[i].Name, got, want)
				}
				if r.GetNamespace() != pods[i].Namespace || r.GetName() != pods[i].Name || r.GetUID() != pods[i].UID ||
					r.GetResourceVersion() != pods[i].ResourceVersion || !reflect.DeepEqual(r.GetLabels(), pods[i].Labels) {
					t.Errorf("%s is known as %s/%s %s %s %v", pods[i].Name, r.GetNamespace(), r.GetName(), r.GetUID(), r.GetResourceVersion(), r.GetLabels())
				}
			}
		})
	}
	wg.Wait()
	if kept*times > wire {
		t.Errorf("%d bytes are kept of %d", kept, wire)
	}
}

// An object is transformed once, before it is kept.
func TestCompactTransforms(t *testing.T) {
	times := 0
	_, c := compact(t, codec.Options{}, func(p *corev1.Pod) (*corev1.Pod, error) {
		if times++; p.Name == "bad" {
			return nil, errors.New("cannot be transformed")
		}
		p.Spec = corev1.PodSpec{NodeName: "n"}
		return p, nil
	})
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "good", UID: "u", ResourceVersion: "5"}, Spec: corev1.PodSpec{Hostname: "h"}}
	for _, format := range []codec.Format{codec.JSON, codec.Protobuf} {
		content, err := json.Marshal(pod)
		if format == codec.Protobuf {
			content, err = pod.Marshal()
		}
		if err != nil {
			t.Fatal(err)
		}
		times = 0
		r, err := c.Decode(format, content)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if got := c.Expand(r); got.Spec.Hostname != "" || got.Spec.NodeName != "n" || got.Name != "good" || got.Kind != "Pod" || times != 1 {
				t.Errorf("after %d transformations it is %+v", times, got)
			}
		}
	}
	if _, err := c.Decode(codec.JSON, []byte(`{"metadata":{"name":"bad"}}`)); err == nil || !strings.Contains(err.Error(), "cannot be transformed") {
		t.Errorf("a transformation that fails gives %v", err)
	}
}

// Overlong names are errors. They are not truncated.
func TestCompactBounds(t *testing.T) {
	_, c := compact[*corev1.Pod](t, codec.Options{}, nil)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: strings.Repeat("n", 70_000)}}
	content, err := pod.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Decode(codec.Protobuf, content); err == nil || !strings.Contains(err.Error(), "70000 bytes") {
		t.Errorf("a name of 70,000 bytes: %v", err)
	}
}

// FuzzCompact checks that Compact accepts exactly the encodings that the inner codec can
// decode.
func FuzzCompact(f *testing.F) {
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "d", Labels: map[string]string{"a": "b"}}}
	pods := samplepods.Clone(3, 1)
	for i := range pods {
		b, _ := pods[i].Marshal()
		f.Add(true, b)
		b, _ = json.Marshal(&pods[i])
		f.Add(false, b)
	}
	b, _ := deployment.Marshal()
	f.Add(true, b)
	for _, s := range []string{`{}`, `{"a":1e999}`, `{"a":123456789012345678901234567890}`, `{"a":[[[[]]]]}`, `{"metadata":{"labels":{"a":null}}}`, "{\"a\":\"\x01\"}", `{"a":"\ud800"}`} {
		f.Add(false, []byte(s))
	}
	typed, keepTyped := compact[*corev1.Pod](f, codec.Options{}, nil)
	dynamic, keepDynamic := compact[*unstructured.Unstructured](f, codec.Options{}, nil)
	f.Fuzz(func(t *testing.T, protobuf bool, content []byte) {
		format := codec.JSON
		if protobuf {
			format = codec.Protobuf
		}
		agree(t, typed, keepTyped, format, content)
		agree(t, dynamic, keepDynamic, format, content)
	})
}

func agree[T any](t *testing.T, inner codec.Codec[T], c *codec.Compact[T], format codec.Format, content []byte) {
	want, wrong := inner.Decode(format, content)
	r, err := c.Decode(format, content)
	switch {
	case err == nil && wrong != nil:
		t.Fatalf("%q is kept, and cannot be decoded: %v", content, wrong)
	case err != nil && wrong == nil && !strings.Contains(err.Error(), "metadata"): // an unstructured object may have odd metadata, one that is kept may not
		t.Fatalf("%q is not kept: %v", content, err)
	case err == nil:
		if got := c.Expand(r); !reflect.DeepEqual(got, want) {
			t.Fatalf("%q is read as\n%+v, not\n%+v", content, got, want)
		}
	}
}
