package fleet

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/klauspost/compress/zstd"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidings-io/tidings/informer"
	"github.com/tidings-io/tidings/internal/codec"
	"github.com/tidings-io/tidings/internal/object"
)

const (
	// pieceSize is the most that one message of a snapshot has.
	pieceSize = 512 << 10
	// piecesWaiting is the number of pieces that may wait to be acknowledged.
	piecesWaiting = 4
)

// head says what the newest snapshot of a feed is.
type head struct {
	position                // of the message that announces it: the log goes on after it
	ID               string `json:"id"` // of its pieces
	Slot             string `json:"slot"`
	Pieces           int    `json:"pieces"`
	Bytes            int    `json:"bytes"`
	Objects          int    `json:"objects"`
	ResourceVersion  string `json:"resourceVersion"`
	Kind, APIVersion string
}

// maxPieces bounds the pieces of a snapshot.
const maxPieces = 1 << 20

// parseHead reads a head.
func parseHead(text []byte, h *head) error {
	if err := json.Unmarshal(text, h); err != nil {
		return err
	}
	if !slices.Contains(slots[:], h.Slot) || h.Pieces < 1 || h.Pieces > maxPieces || h.ID == "" || h.Epoch == "" || h.Number == 0 || h.Number == math.MaxUint64 {
		return errors.New("it cannot be read")
	}
	if _, err := strconv.ParseUint(h.ResourceVersion, 10, 64); err != nil {
		return fmt.Errorf("its resourceVersion: %w", err)
	}
	return nil
}

// version is the resourceVersion.
func (h *head) version() uint64 { return object.Version(h.ResourceVersion) }

// snapshots makes the snapshots of a term, one at a time.
type snapshots struct {
	term      *term
	stream    jetstream.Stream
	prefix    string // of subjects
	documents documents

	mu     sync.Mutex
	pieces *streamWriter
}

// errEmptied says that an informer has nothing of which a snapshot could be made.
var errEmptied = errors.New("the informer has been emptied")

// slots are where the pieces of a feed's snapshots are, in turn.
var slots = [...]string{"a", "b"}

// make publishes what an informer has, to be continued from a position. It returns the size.
//
// There are two slots, so that a reader of the snapshot before is not disturbed until the
// next but one. A stream keeps the last message of each subject, so older snapshots vanish.
func (s *snapshots) make(ctx context.Context, f *feed, at position) (size int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	making := s.term.published.making
	select {
	case making <- struct{}{}:
		defer func() { <-making }()
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	view := f.inf.Engine().View()
	defer view.Release()
	if !view.Synced() {
		return 0, errEmptied
	}
	f.made++
	h := head{
		position: at, ID: at.id(), Slot: slots[f.made%2], Objects: view.Len(), ResourceVersion: view.ResourceVersion(),
		Kind: f.kind.Kind + "List", APIVersion: f.kind.GroupVersion().String(),
	}
	out := &pieceWriter{ctx: ctx, snapshots: s, subject: s.prefix + f.name.token() + "." + h.Slot + ".", id: h.ID}
	if err := writeList(out, h, view); err != nil {
		return 0, err
	}
	if err := out.flush(); err != nil {
		return 0, err
	}
	if err := s.pieces.settle(ctx); err != nil {
		return 0, err
	}
	h.Pieces, h.Bytes = out.pieces, out.size
	text, err := json.Marshal(h)
	if err != nil {
		return 0, err
	}
	msg := &nats.Msg{Subject: s.prefix + f.name.token() + ".head", Data: text, Header: nats.Header{jetstream.MsgIDHeader: {h.ID + "-head"}}}
	if err := s.pieces.send(ctx, msg, nil); err != nil {
		return 0, err
	}
	if err := s.pieces.settle(ctx); err != nil {
		return 0, err
	}
	s.term.set(func(p *PublishState) { p.Snapshots++ })
	return h.Bytes, nil
}

// sweep drops the snapshots of what is not published in this term: nobody can begin with them.
func (s *snapshots) sweep() {
	ctx, cancel := context.WithTimeout(s.term.ctx, endPatience)
	defer cancel()
	info, err := s.stream.Info(ctx, jetstream.WithSubjectFilter(s.prefix+">"))
	if err != nil {
		return // it is lost, or NATS is away: the term notices
	}
	old := map[feedName]bool{}
	for subject := range info.State.Subjects {
		parts := strings.Split(strings.TrimPrefix(subject, s.prefix), ".")
		if name, ok := feedOfToken(strings.Join(parts[:min(4, len(parts))], ".")); ok && s.term.feed(name) == nil {
			old[name] = true
		}
	}
	for name := range old {
		if err := s.stream.Purge(ctx, jetstream.WithPurgeSubject(s.prefix+name.token()+".>")); err != nil {
			s.term.published.log.Debug("the snapshots of a resource that is no longer published cannot be dropped", "resource", name.String(), "err", err)
			return
		}
	}
}

// snapshotWindow is what compressing or expanding a snapshot keeps in memory, about. A replica begins with
// one for each resource of each cluster at once. Objects that are alike are near each other.
const snapshotWindow = 1 << 20

// writeList writes a view as the answer to a list, compressed.
func writeList(out *pieceWriter, h head, view *informer.View[*codec.Raw]) error {
	packed, err := zstd.NewWriter(out, zstd.WithEncoderConcurrency(1), zstd.WithLowerEncoderMem(true), zstd.WithWindowSize(snapshotWindow))
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(packed, 64<<10)
	fmt.Fprintf(w, `{"kind":%s,"apiVersion":%s,"metadata":{"resourceVersion":%s},"items":[`, quoted(h.Kind), quoted(h.APIVersion), quoted(h.ResourceVersion))
	first := true
	for o := range view.All(informer.Query{}) {
		if !first {
			_ = w.WriteByte(',') // its errors are those of Flush
		}
		first = false
		o.VisitJSON(func(b []byte) { _, err = w.Write(b) })
		if err != nil {
			return err
		}
	}
	_, _ = w.WriteString("]}\n")
	if err := w.Flush(); err != nil {
		return err
	}
	return packed.Close()
}

// pieceWriter publishes what is written to it.
type pieceWriter struct {
	ctx       context.Context
	snapshots *snapshots
	subject   string // up to the number of the piece
	id        string
	buf       []byte
	pieces    int
	size      int
}

// Write implements io.Writer.
func (w *pieceWriter) Write(p []byte) (int, error) {
	w.buf = append(w.buf, p...)
	limit := min(pieceSize, w.snapshots.term.limit)
	for len(w.buf) >= limit {
		rest := append([]byte(nil), w.buf[limit:]...)
		w.buf = w.buf[:limit]
		if err := w.flush(); err != nil {
			return 0, err
		}
		w.buf = rest
	}
	return len(p), nil
}

func (w *pieceWriter) flush() error {
	if len(w.buf) == 0 {
		return nil
	}
	number := strconv.Itoa(w.pieces)
	msg := &nats.Msg{
		Subject: w.subject + number, Data: w.buf,
		Header: nats.Header{jetstream.MsgIDHeader: {w.id + "-" + number}, snapshotHeader: {w.id}},
	}
	w.pieces++
	w.size += len(w.buf)
	w.buf = nil
	out := w.snapshots.pieces
	if err := out.send(w.ctx, msg, nil); err != nil {
		return err
	}
	if len(out.waiting) >= piecesWaiting {
		return out.settle(w.ctx)
	}
	return nil
}
