package fleet

import (
	"maps"
	"slices"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	corev1 "k8s.io/api/core/v1"
)

// The snapshots of resources that are not published any more are dropped. Those of others, and the
// documents of discovery, stay.
func TestOldSnapshotsAreDropped(t *testing.T) {
	broker, err := StartEmbedded(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer broker.Close()
	nc, err := broker.Connect("publisher")
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	p, err := NewPublisher(nc, PublisherOptions{Name: "one"})
	if err != nil {
		t.Fatal(err)
	}
	_, pieces, err := openStreams(t.Context(), p.js, "prod", StreamOptions{Memory: true})
	if err != nil {
		t.Fatal(err)
	}
	prefix := snapshotsSubject + "prod."
	stay := []string{prefix + "core.v1.pods._all.a.0", prefix + "core.v1.pods._all.head", prefix + "documents.0123"}
	for _, subject := range append([]string{prefix + "core.v1.services._all.a.0", prefix + "core.v1.services._all.head", prefix + "core.v1.pods.shop.head"}, stay...) {
		if _, err := p.js.Publish(t.Context(), subject, []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	pods := feedName{corev1.SchemeGroupVersion.WithResource("pods"), ""}
	term := &term{published: &published{Publisher: p, name: "prod", log: p.log}, ctx: t.Context(), byName: map[feedName]*feed{pods: {}}}
	(&snapshots{term: term, stream: pieces, prefix: prefix}).sweep()
	all, err := p.js.Stream(t.Context(), snapshotsStream+"prod")
	if err != nil {
		t.Fatal(err)
	}
	info, err := all.Info(t.Context(), jetstream.WithSubjectFilter(">"))
	if err != nil {
		t.Fatal(err)
	}
	if left := slices.Sorted(maps.Keys(info.State.Subjects)); !slices.Equal(left, stay) {
		t.Errorf("left are %q", left)
	}
}
