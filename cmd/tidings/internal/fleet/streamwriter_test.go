package fleet

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// Clusters whose messages are not acknowledged do not hold up others of the same publisher, however
// many there are.
func TestManyClustersWait(t *testing.T) {
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
	if _, err := nc.Subscribe("silent", func(*nats.Msg) {}); err != nil {
		t.Fatal(err)
	}
	p, err := NewPublisher(nc, PublisherOptions{Name: "one"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for cluster := range 4096/mostWaiting + 8 {
		w := &streamWriter{js: p.js, stream: fmt.Sprint(cluster), alone: true}
		for range mostWaiting {
			if err := w.send(ctx, &nats.Msg{Subject: "silent", Header: nats.Header{}}, nil); err != nil {
				t.Fatalf("cluster %d: %v", cluster, err)
			}
		}
		if len(w.waiting) != mostWaiting {
			t.Fatalf("of cluster %d, %d messages wait", cluster, len(w.waiting))
		}
	}
}
