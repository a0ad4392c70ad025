package codec

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"github.com/klauspost/compress/s2"
)

// Packer compresses objects, each by itself, against a dictionary made of some
// of those that came before: of the pods of one ReplicaSet little is left but
// their names, addresses and times.
//
// S2 was chosen over zstd by measure, on real pods of 2.3 KB in protobuf: 0.46 KB
// in 4 µs, and back in 1 µs, against 0.30 KB, 26 µs and 5 µs. It is cheap enough
// to be done as objects arrive, so that nothing waits in memory to be compressed.
//
// It is safe for concurrent use.
type Packer struct {
	latest [2]atomic.Pointer[encoding] // by format

	mu      sync.Mutex
	samples [2]samples
}

// samples are what the next dictionary of a format is made of: objects that
// every one that came had the same chance to be among.
type samples struct {
	seen int
	next int // how many are to be seen before the next dictionary
	kept [][]byte
}

const (
	// firstDictionary is made of this many objects, and each later one once
	// moreEach times as many have come: the first objects of a list are all of
	// one namespace. Each stays as long as something is compressed with it.
	firstDictionary = 32
	moreEach        = 4
	// What S2 can use of a dictionary, and how much of one object may be in it.
	dictionarySize = s2.MaxDictSize
	sampleSize     = dictionarySize / 8
	sampleCount    = 64
	// worthPacking is the size from which on there is something to gain.
	worthPacking = 128
)

// NewPacker returns a Packer that has seen nothing yet.
func NewPacker() *Packer { return &Packer{} }

// raw makes a Raw of an object's encoding, which is only valid during the call.
// A nil Packer compresses nothing.
func (p *Packer) raw(id Identity, format Format, content []byte) (*Raw, error) {
	if p == nil || len(content) < worthPacking {
		return newRaw(id, plain[format], content)
	}
	p.sample(format, content)
	e := p.latest[format].Load()
	if e == nil {
		return newRaw(id, plain[format], content)
	}
	buf := buffers.Get().(*[]byte)
	defer buffers.Put(buf)
	if most := s2.MaxEncodedLen(len(content)); cap(*buf) < most {
		*buf = make([]byte, most)
	}
	packed := e.dict.s2.Encode((*buf)[:cap(*buf)], content)
	if len(packed) >= len(content) {
		return newRaw(id, plain[format], content)
	}
	return newRaw(id, e, packed)
}

// buffers are what objects are compressed and expanded into. What an object of
// unusual size took is left to the next garbage collection.
var buffers = sync.Pool{New: func() any { b := make([]byte, 64<<10); return &b }}

// sample takes note of an object and makes a dictionary when it is time.
func (p *Packer) sample(format Format, content []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := &p.samples[format]
	s.seen++
	place := len(s.kept)
	if place == sampleCount {
		if place = rand.IntN(s.seen); place >= sampleCount {
			place = -1
		}
	} else {
		s.kept = append(s.kept, nil)
	}
	if place >= 0 {
		s.kept[place] = append(s.kept[place][:0], content[:min(len(content), sampleSize)]...)
	}
	if s.seen < max(s.next, firstDictionary) {
		return
	}
	s.next = s.seen * moreEach
	p.latest[format].Store(&encoding{format, newDictionary(s.kept)})
}

// dictionary is what objects are compressed with.
type dictionary struct{ s2 *s2.Dict }

func newDictionary(samples [][]byte) *dictionary {
	content := make([]byte, 0, dictionarySize+16) // S2 copies what has no room for more
	for _, i := range rand.Perm(len(samples)) {
		if len(content)+len(samples[i]) <= dictionarySize {
			content = append(content, samples[i]...)
		}
	}
	return &dictionary{s2.MakeDict(content, nil)}
}

// expand undoes what a Packer did, in dst if there is room.
func (d *dictionary) expand(dst, packed []byte) []byte {
	content, err := d.s2.Decode(dst, packed)
	if err != nil {
		panic("codec: what was compressed here cannot be expanded: " + err.Error())
	}
	return content
}
