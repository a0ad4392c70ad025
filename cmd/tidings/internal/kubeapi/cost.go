package kubeapi

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidings-io/tidings/cmd/tidings/internal/budget"
	"github.com/tidings-io/tidings/cmd/tidings/internal/read"
)

// Cost is the memory and time that an answer takes while it is made and sent.
type Cost = budget.Cost

// Admit waits until an answer of a cost may be made. The caller must call leave when the
// answer has been sent. If Admit returns an error, that is the answer.
type Admit func(context.Context, Cost) (leave func(), err error)

const (
	// StreamBytes is the memory of an answer that is sent piece by piece: its buffers
	// and those of the compressor.
	StreamBytes = 256<<10 + 1<<20
	// shortBytes is the memory of an answer that is too short to be compressed.
	shortBytes = 256 << 10
	// Answers that cost no more than this need no admission: the number of concurrent
	// requests is bounded, and they add up to little.
	littleBytes = 1 << 20
	littleWork  = 20 * time.Millisecond
)

// rate is the cost of a form: the time for each byte of the objects' JSON, and the memory
// for each byte of the longest object, which is in memory as a whole. The values were
// measured with pods on a slow CPU and have a margin.
type rate struct {
	work time.Duration
	live int64
}

var (
	readRate     = rate{2 * time.Nanosecond, 2} // expand, copy, compress, send
	prettyRate   = rate{10 * time.Nanosecond, 6}
	yamlRate     = rate{170 * time.Nanosecond, 70}
	protobufRate = rate{30 * time.Nanosecond, 10} // twice, if it is not cached
	rowRate      = rate{8 * time.Nanosecond, 3}
)

// size is the size of the JSON of objects.
type size struct{ all, longest int64 }

func (c *call) size(found []*read.Object) (s size) {
	for _, o := range found {
		n := int64(o.Len()) + 200 // the fixed cost of an object
		s.all += n
		s.longest = max(s.longest, n)
	}
	return s
}

// cost estimates the cost of an answer with these objects in the requested form.
func (c *call) cost(found []*read.Object) Cost {
	s := c.size(found)
	written := s // the size of what the answer includes
	r := readRate
	plus := func(more rate, of size) {
		// Relative to the bytes of the whole objects.
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

// admit waits until an answer may be made, see Options.Admit.
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

// late is how many times its estimated time an admitted answer may take beyond the
// deadline of its request, on busy CPUs: if it were cut off, the client would retry, and
// the work would start again.
const late = 20
