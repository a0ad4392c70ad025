package table

import (
	"encoding/json"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/tidings-io/tidings/internal/samplepods"
)

// BenchmarkRow makes the row of a pod.
func BenchmarkRow(b *testing.B) {
	var all [][]byte
	for pod := range samplepods.All(200, 1) {
		content, err := json.Marshal(pod)
		if err != nil {
			b.Fatal(err)
		}
		all = append(all, content)
	}
	p := For(corev1.SchemeGroupVersion.WithKind("Pod"), nil)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if _, err := p.Row(all[i%len(all)]); err != nil {
			b.Fatal(err)
		}
	}
}
