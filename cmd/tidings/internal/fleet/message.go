package fleet

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// The kinds of messages in a log. They are a token of the subject.
const (
	kindEpoch    = "epoch"
	kindChanges  = "changes"
	kindSnapshot = "snapshot"
	kindBeat     = "beat"
	kindEnd      = "end"
)

const (
	// versionsHeader has the resourceVersions of the first and the last event of
	// a message of changes, as FIRST-LAST.
	versionsHeader = "Tidings-Versions"
	// moreHeader says that the message goes on in the next one of its subject, because it
	// is too long for one.
	moreHeader = "Tidings-More"
	// resetHeader of a message about a snapshot says that the changes before it
	// cannot be continued.
	resetHeader = "Tidings-Reset"
	// publisherHeader of the first message of an epoch has the name of its publisher.
	publisherHeader = "Tidings-Publisher"
	// snapshotHeader identifies the snapshot that a piece belongs to.
	snapshotHeader = "Tidings-Snapshot"
)

// position is a place in the log of a cluster.
type position struct {
	Epoch    string `json:"epoch"`
	Number   uint64 `json:"number"`
	Sequence uint64 `json:"sequence"` // of the stream; believed only if epoch and number are found there
}

func (p position) id() string { return p.Epoch + "-" + strconv.FormatUint(p.Number, 10) }

// message is a message of a log.
type message struct {
	position
	kind        string
	feed        feedName // of changes and snapshots
	first, last uint64   // resourceVersions of changes
	more, reset bool
	payload     []byte
	stored      time.Time // by the clock of NATS
}

// parseMessage reads a message of the log of a cluster.
func parseMessage(cluster, subject string, header nats.Header, payload []byte, sequence uint64) (m message, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("message %d of the log of cluster %s: %w", sequence, cluster, err)
		}
	}()
	m.payload, m.Sequence = payload, sequence
	epoch, number, ok := strings.Cut(header.Get(jetstream.MsgIDHeader), "-")
	if m.Epoch = epoch; !ok || epoch == "" {
		return m, fmt.Errorf("it has no epoch and number")
	}
	if m.Number, err = strconv.ParseUint(number, 10, 64); err != nil {
		return m, err
	}
	rest, ok := strings.CutPrefix(subject, logSubject+token(cluster)+".")
	if !ok {
		return m, fmt.Errorf("its subject is %q", subject)
	}
	kind, feed, _ := strings.Cut(rest, ".")
	switch m.kind = kind; kind {
	case kindEpoch, kindBeat, kindEnd:
		return m, nil
	case kindChanges, kindSnapshot:
		if m.feed, ok = feedOfToken(feed); !ok {
			return m, fmt.Errorf("its subject %q names no resource", subject)
		}
	default:
		return m, fmt.Errorf("its subject %q is of no known kind", subject)
	}
	m.more, m.reset = header.Get(moreHeader) != "", header.Get(resetHeader) != ""
	if kind == kindChanges {
		from, to, _ := strings.Cut(header.Get(versionsHeader), "-")
		if m.first, err = strconv.ParseUint(from, 10, 64); err != nil {
			return m, err
		}
		if m.last, err = strconv.ParseUint(to, 10, 64); err != nil {
			return m, err
		}
	}
	return m, nil
}
