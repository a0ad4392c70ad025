package kubeapi

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidings-io/tidings/internal/budget"
	"github.com/tidings-io/tidings/read"
)

// Cost is what an answer takes while it is made and sent.
type Cost = budget.Cost

// Admit lets an answer be made, when there is room for it. The function that is
// returned says that it has been sent. The error is the answer otherwise.
type Admit func(context.Context, Cost) (leave func(), err error)

const (
	// StreamBytes is what an answer takes that is sent piece by piece: its buffers,
	// and those of a compressor if it is long.
	StreamBytes = 256<<10 + 1<<20
	// shortBytes is what one takes that is not long enough to be compressed.
	shortBytes = 256 << 10
	// What costs no more than this is not asked about: there are never so many
	// requests under way that it would be much together.
	littleBytes = 1 << 20
	littleWork  = 20 * time.Millisecond
)

// rate is what a form takes: time for each byte of the objects' JSON, and memory for
// each byte of the longest, which is in memory as a whole. By measure of pods on a
// slow processor, with some to spare.
type rate struct {
	work time.Duration
	live int64
}

var (
	readRate     = rate{2 * time.Nanosecond, 2} // expand, copy, compress, send
	prettyRate   = rate{10 * time.Nanosecond, 6}
	yamlRate     = rate{170 * time.Nanosecond, 70}
	protobufRate = rate{30 * time.Nanosecond, 10} // twice, if it is not kept
	rowRate      = rate{8 * time.Nanosecond, 3}
)

// size is how long the JSON of objects is.
type size struct{ all, longest int64 }

func (c *call) size(found []*read.Object) (s size) {
	for _, o := range found {
		n := int64(o.Len()) + 200 // which stands for what each takes, however short
		s.all += n
		s.longest = max(s.longest, n)
	}
	return s
}

// cost is what a list of objects, or one of them, takes in the form that was asked
// for.
func (c *call) cost(found []*read.Object) Cost {
	s := c.size(found)
	written := s // what the form is made of
	r := readRate
	plus := func(more rate, of size) {
		// In bytes of the whole objects.
		part := float64(of.all) / float64(max(s.all, 1))
		r.work += time.Duration(part * float64(more.work))
		r.live += int64(part * float64(more.live))
	}
	if c.form.content == table {
		plus(rowRate, s)
		if c.form.include != metav1.IncludeObject {
			written = size{s.all / 2, s.longest / 2}
		}
	}
	if c.form.media == asProtobuf || c.form.content == metadata {
		plus(protobufRate, s)
	}
	switch {
	case c.form.media == asYAML:
		plus(yamlRate, written)
	case c.form.pretty:
		plus(prettyRate, written)
	}
	out := Cost{Bytes: shortBytes, Work: time.Duration(s.all) * r.work}
	if s.all > gzipFrom/4 {
		out.Bytes = StreamBytes
	}
	out.Bytes += 8*int64(len(found)) + s.longest*r.live
	return out
}

// admit asks for room for an answer.
func (c *call) admit(ctx context.Context, cost Cost) (leave func(), err error) {
	if c.opts.Admit == nil || cost.Bytes <= littleBytes && cost.Work <= littleWork {
		return func() {}, nil
	}
	leave, err = c.opts.Admit(ctx, cost)
	if until, ok := c.r.Context().Deadline(); ok && err == nil {
		c.until = until.Add(late * cost.Work)
	}
	return leave, err
}

// late is how many times what is reckoned the work may take beyond the time of the
// request, where the processors have other things to do: what has been let in would be
// asked for again if it were cut off, and all of it done anew.
const late = 20
