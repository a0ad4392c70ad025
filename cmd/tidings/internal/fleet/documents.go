package fleet

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"sync"

	"github.com/nats-io/nats.go"
)

// The documents of discovery are kept beside the snapshots, so that a mirror can begin to follow a
// cluster while its publisher is away. Those that were asked for are kept, as they were answered.

// documentToken is the name of the document that a question is about. ok is false for other
// questions.
func documentToken(method, path, accept string) (name string, ok bool) {
	if method != http.MethodGet || path == "/readyz" || !mayAsk(method, path) {
		return "", false
	}
	sum := sha256.Sum256([]byte(path + "\n" + accept))
	return "documents." + hex.EncodeToString(sum[:16]), true
}

// maxDocuments bounds the documents that are kept of a cluster: some clients have odd types of
// content.
const maxDocuments = 4096

// documents keeps the documents of a cluster during a term.
type documents struct {
	mu   sync.Mutex
	kept map[string][sha256.Size]byte // the sums of what the stream has
}

// keep puts a document on the stream if it has changed.
func (s *snapshots) keep(ctx context.Context, name, contentType string, body []byte) error {
	sum := sha256.Sum256(body)
	s.documents.mu.Lock()
	has, known := s.documents.kept[name]
	full := len(s.documents.kept) >= maxDocuments
	s.documents.mu.Unlock()
	if known && has == sum || !known && full {
		return nil
	}
	packed := encoder.EncodeAll(body, nil)
	if len(packed) > s.term.limit {
		return nil // discovery needs none that long
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	msg := &nats.Msg{Subject: s.prefix + name, Data: packed, Header: nats.Header{contentHeader: {contentType}}}
	if err := s.pieces.send(ctx, msg, nil); err != nil {
		return err
	}
	if err := s.pieces.settle(ctx); err != nil {
		return err
	}
	s.documents.mu.Lock()
	defer s.documents.mu.Unlock()
	s.documents.kept[name] = sum
	return nil
}

// kept returns the answer to a question as it was before the publisher went away.
func (r *replica) kept(ctx context.Context, name string) (contentType string, body []byte, err error) {
	msg, err := r.last(ctx, snapshotsStream, snapshotsSubject+token(r.name)+"."+name)
	if err != nil {
		return "", nil, err
	}
	body, err = decoder.DecodeAll(msg.Data, nil)
	return msg.Header.Get(contentHeader), body, err
}
