package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tidings-io/tidings/cluster"
	"github.com/tidings-io/tidings/examples/internal/target"
)

// watchUntil runs the watcher until the queue has messages enough, and returns them.
func watchUntil(t *testing.T, conn *cluster.Cluster, saved checkpoint, enough func([]message) bool) (messages []message) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	in, out := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		ended <- run(ctx, conn, "pods", saved, queue{out}, slog.New(slog.NewTextHandler(io.Discard, nil)))
		out.Close()
	}()
	for scanner := bufio.NewScanner(in); scanner.Scan(); {
		var m message
		if err := json.Unmarshal(scanner.Bytes(), &m); err != nil {
			t.Fatal(err)
		}
		if messages = append(messages, m); enough(messages) {
			cancel()
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	return messages
}

// TestResume restarts the watcher. The queue gets each change once, in order.
func TestResume(t *testing.T) {
	conn, disconnect, err := target.Demo(t.Context(), 10*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	defer disconnect()
	saved := checkpoint{filepath.Join(t.TempDir(), "state")}
	first := watchUntil(t, conn, saved, func(m []message) bool { return len(m) == 6 })
	var types []string
	for _, m := range first[:4] {
		types = append(types, m.Type)
	}
	if got := strings.Join(types, " "); got != "ADDED ADDED SYNCED MODIFIED" {
		t.Errorf("the queue began with %s", got)
	}
	second := watchUntil(t, conn, saved, func(m []message) bool { return len(m) == 5 })
	last := first[len(first)-1]
	for _, m := range second {
		// The demo writes a pod and a deployment in turn, web and db in turn.
		if m.Type != "MODIFIED" || m.Name == last.Name || number(t, m) != number(t, last)+2 {
			t.Errorf("after %+v the queue got %+v", last, m)
		}
		last = m
	}
}

func number(t *testing.T, m message) int {
	t.Helper()
	n, err := strconv.Atoi(m.ResourceVersion)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// broken is a queue that is full after a number of messages.
type broken struct{ left int }

func (b *broken) Write(p []byte) (int, error) {
	if b.left--; b.left < 0 {
		return 0, errors.New("the queue is full")
	}
	return len(p), nil
}

// TestBrokenQueue checks that what the queue has not taken comes again.
func TestBrokenQueue(t *testing.T) {
	conn, disconnect, err := target.Demo(t.Context(), 10*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	defer disconnect()
	saved := checkpoint{filepath.Join(t.TempDir(), "state")}
	err = run(t.Context(), conn, "pods", saved, queue{&broken{4}}, slog.New(slog.NewTextHandler(io.Discard, nil)))
	if err == nil || !strings.Contains(err.Error(), "to the queue: the queue is full") {
		t.Fatalf("it ended with %v", err)
	}
	version, err := saved.load()
	if err != nil {
		t.Fatal(err)
	}
	again := watchUntil(t, conn, saved, func(m []message) bool { return len(m) == 1 })
	if before, _ := strconv.Atoi(version); number(t, again[0]) != before+2 {
		t.Errorf("up to %s was saved, and %+v came next", version, again[0])
	}
}
