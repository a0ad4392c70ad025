// Watcher feeds the changes of a resource to a queue, and goes on after a restart where
// it has ended: it keeps the resourceVersion up to which the queue has everything in a
// file.
//
//	go run ./examples/watcher                                  # with a demo cluster in memory
//	go run ./examples/watcher --demo=false --resource deploy   # with the cluster of the kubeconfig
//
// The queue is the standard output here, a line of JSON for each change. Put the client
// of a message queue in its place, in [queue.add].
//
// The queue gets each change at least once: after a crash, some come again. The API
// server keeps changes for some minutes only. After a longer pause all objects come as
// ADDED, then a line of the type SYNCED: what came before and not since then is gone.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidings-io/tidings/cluster"
	"github.com/tidings-io/tidings/examples/internal/target"
	"github.com/tidings-io/tidings/informer"
)

func main() {
	var flags target.Flags
	flags.Register(flag.CommandLine)
	resource := flag.String("resource", "pods", "resource to watch, as kubectl names it")
	state := flag.String("state", filepath.Join(os.TempDir(), "tidings-example-watcher"), "file for the resourceVersion; the demo, which ends with the process, has none")
	flag.Parse()
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := func() error {
		conn, disconnect, err := flags.Connect(ctx)
		if err != nil {
			return err
		}
		defer disconnect()
		if conn.Name() == "demo" {
			*state = ""
		}
		return run(ctx, conn, *resource, checkpoint{path: *state}, queue{os.Stdout}, log)
	}()
	if err != nil {
		log.Error("the watcher has ended", "err", err)
		os.Exit(1)
	}
}

// queue is where changes go.
type queue struct{ out io.Writer }

// message is a change in the queue. It has metadata only: the informer requests and
// keeps no more.
type message struct {
	Type            string    `json:"type"`
	Namespace       string    `json:"namespace,omitempty"`
	Name            string    `json:"name,omitempty"`
	UID             string    `json:"uid,omitempty"`
	ResourceVersion string    `json:"resourceVersion"`
	Time            time.Time `json:"time"`
}

// add adds a message. When it returns nil, the queue has the message for good.
func (q queue) add(m message) error { return json.NewEncoder(q.out).Encode(m) }

// checkpoint is the file of the resourceVersion. An empty path keeps nothing.
type checkpoint struct{ path string }

// load returns the version to resume from, empty for none.
func (c checkpoint) load() (string, error) {
	if c.path == "" {
		return "", nil
	}
	content, err := os.ReadFile(c.path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return strings.TrimSpace(string(content)), err
}

// save replaces the file in one step: a crash leaves the old version or the new one.
func (c checkpoint) save(version string) error {
	if c.path == "" || version == "" {
		return nil
	}
	if err := os.WriteFile(c.path+".new", []byte(version+"\n"), 0o600); err != nil {
		return err
	}
	return os.Rename(c.path+".new", c.path)
}

// run feeds the queue until ctx ends or the queue fails.
func run(ctx context.Context, conn *cluster.Cluster, resource string, saved checkpoint, q queue, log *slog.Logger) error {
	version, err := saved.load()
	if err != nil {
		return fmt.Errorf("read the version to resume from: %w", err)
	}
	log.Info("watching", "resource", resource, "after", version)
	changes, err := informer.New[*metav1.PartialObjectMetadata](conn, informer.Resource(resource), informer.From(version), informer.Logger(log))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// The handler is added before the start, so it gets each change as it happened. If
	// the queue is slow, changes wait in the log of the informer.
	var failed error
	changes.AddHandler(informer.HandlerFunc[*metav1.PartialObjectMetadata](func(e informer.Event[*metav1.PartialObjectMetadata]) {
		if failed != nil {
			return // what follows must not be saved as delivered
		}
		if failed = deliver(e, q, saved); failed != nil {
			cancel(failed)
		}
	}), informer.Named("queue"), informer.Bookmarks())
	if err := changes.Run(ctx); err != nil { // returns when the handler has returned, too
		return err
	}
	return failed
}

// deliver adds an event to the queue, and then saves how far the queue is.
func deliver(e informer.Event[*metav1.PartialObjectMetadata], q queue, saved checkpoint) error {
	if e.Type != informer.Bookmark {
		m := message{Type: e.Type.String(), ResourceVersion: e.ResourceVersion(), Time: time.Now()}
		if e.Object != nil {
			m.Namespace, m.Name, m.UID = e.Object.Namespace, e.Object.Name, string(e.Object.UID)
		}
		if err := q.add(m); err != nil {
			return fmt.Errorf("add %s %s/%s to the queue: %w", m.Type, m.Namespace, m.Name, err)
		}
	}
	if !e.Resumable { // in the middle of a list
		return nil
	}
	if err := saved.save(e.ResourceVersion()); err != nil {
		return fmt.Errorf("save the version to resume from: %w", err)
	}
	return nil
}
