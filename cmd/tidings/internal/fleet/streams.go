package fleet

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// StreamOptions say how the streams of a cluster are made.
type StreamOptions struct {
	// Replicas is the number of NATS servers that keep each stream. 0 means 1.
	Replicas int
	// LogSize is the size in bytes of the log. 0 means 256 MiB.
	LogSize int64
	// Memory keeps the streams in the memory of the NATS servers.
	Memory bool
}

func (o StreamOptions) log(cluster string) jetstream.StreamConfig {
	name := token(cluster)
	return jetstream.StreamConfig{
		Name: logStream + name, Subjects: []string{logSubject + name + ".>"}, Description: "what changes in cluster " + cluster,
		MaxBytes: cmp.Or(o.LogSize, 256<<20), Storage: o.storage(), Replicas: cmp.Or(o.Replicas, 1), AllowDirect: true,
	}
}

func (o StreamOptions) snapshots(cluster string) jetstream.StreamConfig {
	name := token(cluster)
	return jetstream.StreamConfig{
		Name: snapshotsStream + name, Subjects: []string{snapshotsSubject + name + ".>"}, Description: "what cluster " + cluster + " has",
		MaxMsgsPerSubject: 1, Storage: o.storage(), Replicas: cmp.Or(o.Replicas, 1), AllowDirect: true,
	}
}

func (o StreamOptions) storage() jetstream.StorageType {
	if o.Memory {
		return jetstream.MemoryStorage
	}
	return jetstream.FileStorage
}

// openStreams opens the streams of a cluster, and makes them if they do not exist. Those that
// exist stay as they are: a publisher that could change streams could have them copy those of
// others, so it should not have the right to.
func openStreams(ctx context.Context, js jetstream.JetStream, cluster string, opts StreamOptions) (log, snapshots jetstream.Stream, err error) {
	open := func(cfg jetstream.StreamConfig) (jetstream.Stream, error) {
		s, err := js.Stream(ctx, cfg.Name)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			s, err = js.CreateStream(ctx, cfg)
		}
		return s, streamError(cfg.Name, err)
	}
	if log, err = open(opts.log(cluster)); err == nil {
		snapshots, err = open(opts.snapshots(cluster))
	}
	return log, snapshots, err
}

// AddCluster makes the streams of a cluster, for a publisher that has no right to, or changes
// their size and the number of their replicas.
func AddCluster(ctx context.Context, js jetstream.JetStream, cluster string, opts StreamOptions) error {
	for _, cfg := range []jetstream.StreamConfig{opts.log(cluster), opts.snapshots(cluster)} {
		if _, err := js.CreateOrUpdateStream(ctx, cfg); err != nil {
			return streamError(cfg.Name, err)
		}
	}
	return nil
}

// noRoom is the code of JetStream's error that a stream would take more than there is.
const noRoom jetstream.ErrorCode = 10047

// streamError is an error of JetStream about a stream, nil for nil.
func streamError(name string, err error) error {
	if err == nil {
		return nil
	}
	if e := (*jetstream.APIError)(nil); errors.As(err, &e) && e.ErrorCode == noRoom {
		err = fmt.Errorf("%w: NATS reserves the whole size of each log; raise max_file_store there, or give a smaller --stream-size", err)
	}
	return fmt.Errorf("stream %s: %w", name, err)
}

// RemoveCluster deletes the streams of a cluster. It is an error if there are none.
func RemoveCluster(ctx context.Context, js jetstream.JetStream, cluster string) error {
	missing := 0
	for _, name := range []string{logStream + token(cluster), snapshotsStream + token(cluster)} {
		err := js.DeleteStream(ctx, name)
		switch {
		case errors.Is(err, jetstream.ErrStreamNotFound):
			missing++
		case err != nil:
			return streamError(name, err)
		}
	}
	if missing == 2 {
		return errors.New("it has no streams")
	}
	return nil
}

// Published is a cluster as the streams have it.
type Published struct {
	Name      string    `json:"name"`
	Publisher string    `json:"publisher,omitempty"` // the last that has begun
	Ended     bool      `json:"ended,omitempty"`     // it has stopped
	Last      time.Time `json:"last,omitzero"`       // when the last message came, by the clock of NATS
	Messages  uint64    `json:"messages"`            // in the log
	LogBytes  uint64    `json:"logBytes"`
	Snapshots uint64    `json:"snapshotBytes"`
	Replicas  int       `json:"replicas"` // of the streams
	// Unpublished has the resources that cannot be published, and why.
	Unpublished map[string]string `json:"unpublished,omitempty"`
}

// List returns the published clusters, sorted by name.
func List(ctx context.Context, js jetstream.JetStream) ([]Published, error) {
	var all []Published
	streams := js.ListStreams(ctx, jetstream.WithStreamListSubject(logSubject+">"))
	for info := range streams.Info() {
		escaped, _ := strings.CutPrefix(info.Config.Name, logStream)
		name, ok := fromToken(escaped)
		if !ok {
			continue
		}
		p := Published{Name: name, Last: info.State.LastTime, Messages: info.State.Msgs, LogBytes: info.State.Bytes, Replicas: info.Config.Replicas}
		log, err := js.Stream(ctx, info.Config.Name)
		if err != nil {
			return nil, err
		}
		prefix := logSubject + token(name) + "."
		if begun, err := log.GetLastMsgForSubject(ctx, prefix+kindEpoch); err == nil {
			p.Publisher = begun.Header.Get(publisherHeader)
		}
		if end, err := log.GetLastMsgForSubject(ctx, prefix+kindEnd); err == nil {
			p.Ended = end.Sequence == info.State.LastSeq
		}
		if m, err := log.GetLastMsgForSubject(ctx, prefix+kindBeat); err == nil {
			var b beat
			if json.Unmarshal(m.Data, &b) == nil {
				p.Unpublished = b.Unpublished
			}
		}
		if snapshots, err := js.Stream(ctx, snapshotsStream+token(name)); err == nil {
			p.Snapshots = snapshots.CachedInfo().State.Bytes
		}
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b Published) int { return cmp.Compare(a.Name, b.Name) })
	return all, streams.Err()
}
