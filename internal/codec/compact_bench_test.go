package codec_test

import (
	"encoding/json"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tidings-io/tidings/internal/codec"
	"github.com/tidings-io/tidings/internal/samplepods"
)

// BenchmarkPod measures decoding, keeping and reading a pod.
func BenchmarkPod(b *testing.B) {
	pods := samplepods.Clone(1000, 1)
	var wire, text [][]byte
	for i := range pods {
		content, err := pods[i].Marshal()
		if err != nil {
			b.Fatal(err)
		}
		wire = append(wire, content)
		if content, err = json.Marshal(&pods[i]); err != nil {
			b.Fatal(err)
		}
		text = append(text, content)
	}
	kind := schema.GroupVersionKind{Version: "v1", Kind: "Pod"}
	typed, err := codec.For[*corev1.Pod](kind, codec.Options{})
	if err != nil {
		b.Fatal(err)
	}
	compact := codec.NewCompact(typed, codec.Options{}, nil, codec.NewPacker())
	raw, err := codec.For[*codec.Raw](kind, codec.Options{Pack: codec.NewPacker()})
	if err != nil {
		b.Fatal(err)
	}
	owned, err := codec.For[*codec.Raw](kind, codec.Options{Pack: codec.NewPacker(), Owners: true})
	if err != nil {
		b.Fatal(err)
	}
	var kept []*codec.Raw
	for _, content := range wire {
		r, err := compact.Decode(codec.Protobuf, content)
		if err != nil {
			b.Fatal(err)
		}
		kept = append(kept, r)
	}
	run := func(name string, f func(i int)) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for i := range b.N {
				f(i % len(pods))
			}
		})
	}
	run("decode", func(i int) { _, _ = typed.Decode(codec.Protobuf, wire[i]) })
	run("decode JSON", func(i int) { _, _ = typed.Decode(codec.JSON, text[i]) })
	run("compact", func(i int) { _, _ = compact.Decode(codec.Protobuf, wire[i]) })
	run("read compact", func(i int) { _ = compact.Expand(kept[i]) })
	run("labels of compact", func(i int) { _ = kept[i].GetLabels() })
	run("raw JSON", func(i int) { _, _ = raw.Decode(codec.JSON, text[i]) })
	run("raw JSON with owners", func(i int) { _, _ = owned.Decode(codec.JSON, text[i]) })
	run("peek", func(i int) { _, _ = codec.Peek(codec.Protobuf, wire[i]) })
	run("peek JSON", func(i int) { _, _ = codec.Peek(codec.JSON, text[i]) })
}
