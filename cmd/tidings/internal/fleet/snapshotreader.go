package fleet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/klauspost/compress/zstd"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	// maxDecoded bounds what one message may take when it is expanded.
	maxDecoded = 64 << 20
	// maxWindow bounds the memory of expanding a snapshot.
	maxWindow = 32 << 20
	// A snapshot may be expanded to maxExpansion times its size, and freeExpansion in any case.
	maxExpansion, freeExpansion = 1000, 64 << 20
	// piecesAhead is the number of pieces that are fetched before they are read.
	piecesAhead = 2
)

// openSnapshot returns the answer to a list that a snapshot has.
func (r *replica) openSnapshot(ctx context.Context, name feedName, h head) io.ReadCloser {
	ctx, cancel := context.WithCancel(ctx)
	pieces := &pieceReader{ctx: ctx, cancel: cancel, next: make(chan piece, piecesAhead)}
	subject := snapshotsSubject + token(r.name) + "." + name.token() + "." + h.Slot + "."
	go func() {
		defer close(pieces.next)
		stream, err := r.js.Stream(ctx, snapshotsStream+token(r.name))
		for i := range h.Pieces {
			var msg *jetstream.RawStreamMsg
			if err == nil {
				msg, err = stream.GetLastMsgForSubject(ctx, subject+strconv.Itoa(i))
			}
			if err == nil && msg.Header.Get(snapshotHeader) != h.ID || errors.Is(err, jetstream.ErrMsgNotFound) {
				err = fmt.Errorf("%w: piece %d is missing or was replaced by another snapshot", errIncomplete, i)
			}
			p := piece{err: err}
			if err == nil {
				p.data = msg.Data
			}
			select {
			case pieces.next <- p:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	unpacked, _ := zstd.NewReader(pieces, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow)) // fails only for wrong options
	return &snapshotBody{Decoder: unpacked, pieces: pieces, what: fmt.Sprintf("the snapshot of %s of cluster %s", name, r.name), spoilt: func() { r.feed(name).spoil(h.ID) }}
}

// errIncomplete says that a snapshot cannot be read, now or later.
var errIncomplete = errors.New("the snapshot is not complete")

type piece struct {
	data []byte
	err  error
}

// pieceReader joins the pieces of a snapshot.
type pieceReader struct {
	ctx    context.Context
	cancel context.CancelFunc
	next   chan piece
	rest   []byte
	size   int   // that was read
	failed error // of a piece
}

// Read implements io.Reader.
func (r *pieceReader) Read(p []byte) (int, error) {
	for len(r.rest) == 0 {
		next, ok := <-r.next
		switch {
		case r.ctx.Err() != nil:
			return 0, context.Cause(r.ctx)
		case !ok:
			return 0, io.EOF
		case next.err != nil:
			r.failed = next.err
			return 0, next.err
		}
		r.rest = next.data
		r.size += len(next.data)
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// snapshotBody is the body of a list.
type snapshotBody struct {
	*zstd.Decoder
	pieces *pieceReader
	what   string
	size   int    // that was read
	spoilt func() // is called if the snapshot cannot be read, now or later
}

// Read implements io.Reader.
func (b *snapshotBody) Read(p []byte) (int, error) {
	n, err := b.Decoder.Read(p)
	if b.size += n; b.size > freeExpansion && b.size/maxExpansion > b.pieces.size {
		n, err = 0, fmt.Errorf("%w: it is expanded to more than %d times its size", errIncomplete, maxExpansion)
	}
	if err == nil || err == io.EOF {
		return n, err
	}
	// What is neither a fault of the network nor the end of the reader is one of the snapshot.
	if b.pieces.ctx.Err() == nil && (b.pieces.failed == nil || errors.Is(b.pieces.failed, errIncomplete)) {
		b.spoilt()
	}
	return n, fmt.Errorf("%s: %w", b.what, err)
}

// Close implements io.Closer.
func (b *snapshotBody) Close() error {
	b.pieces.cancel()
	b.Decoder.Close()
	return nil
}
