package kubeapi

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"slices"
	"sync"

	"github.com/klauspost/compress/flate"
)

// packed is the middle part of many answers: lists of the same objects differ only in
// their versions, which are in the head and tail around it. If it is long it is
// compressed.
type packed struct {
	content  [][]byte
	deflated bool   // the content is complete DEFLATE blocks that end on a byte boundary, none marked as the last
	sum      uint32 // CRC-32 of the uncompressed content
	size     int64  // of the uncompressed content
}

// memory is the number of bytes that the content takes.
func (p *packed) memory() (n int64) {
	for _, part := range p.content {
		n += int64(cap(part))
	}
	return n
}

var deflaters = sync.Pool{New: func() any {
	w, _ := flate.NewWriter(nil, flate.BestSpeed) // the level is valid
	return w
}}

// packer packs the content that is added to it.
type packer struct {
	from int   // longer content is compressed
	max  int64 // longer compressed content is not packed. 0: no limit
	out  packed
	long int64         // compressed so far
	to   *flate.Writer // nil as long as the content is not compressed
}

// errTooLong says that a list is too long for the list cache.
var errTooLong = errors.New("kubeapi: the list is too long to be cached")

// piece is the size of the parts of compressed content. The content grows by parts and
// is never copied.
const piece = 64 << 10

// sink receives the compressed bytes.
type sink struct{ *packer }

func (s sink) Write(p []byte) (int, error) {
	if s.long += int64(len(p)); s.max > 0 && s.long > s.max {
		return 0, errTooLong
	}
	for rest := p; len(rest) > 0; {
		last := len(s.out.content) - 1
		if last < 0 || len(s.out.content[last]) == cap(s.out.content[last]) {
			s.out.content = append(s.out.content, make([]byte, 0, piece))
			last++
		}
		part := &s.out.content[last]
		n := min(len(rest), cap(*part)-len(*part))
		*part, rest = append(*part, rest[:n]...), rest[n:]
	}
	return len(p), nil
}

// add adds a copy of b.
func (p *packer) add(b []byte) error {
	p.out.size += int64(len(b))
	if p.to == nil {
		if len(p.out.content) == 0 {
			p.out.content = [][]byte{nil}
		}
		short := &p.out.content[0]
		if *short = append(*short, b...); len(*short) <= p.from {
			return nil
		}
		b = *short
		p.out.content, p.out.deflated = nil, true
		p.to = deflaters.Get().(*flate.Writer)
		p.to.Reset(sink{p})
	}
	p.out.sum = crc32.Update(p.out.sum, crc32.IEEETable, b)
	_, err := p.to.Write(b)
	return err
}

// done returns the packed content. The packer must not be used afterwards.
func (p *packer) done() (*packed, error) {
	var err error
	if p.to != nil {
		err = p.to.Flush()
		p.to.Reset(nil)
		deflaters.Put(p.to)
	}
	if last := len(p.out.content) - 1; last >= 0 {
		p.out.content[last] = bytes.Clone(p.out.content[last]) // without spare capacity
	}
	return &p.out, err
}

// gzipHeader is a header of RFC 1952 without name and time, with an unknown system.
var gzipHeader = []byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 4, 255}

// within returns the parts of an answer with the content between head and tail, and
// their length. If the content is compressed, the answer is a gzip stream, in which head
// and tail are stored uncompressed. Each must be shorter than 64 KB.
func (p *packed) within(head, tail []byte) (length int, parts [][]byte) {
	if p.deflated {
		sum := joinedSum(crc32.ChecksumIEEE(head), p.sum, p.size)
		sum = joinedSum(sum, crc32.ChecksumIEEE(tail), int64(len(tail)))
		size := int64(len(head)) + p.size + int64(len(tail))
		front := append(make([]byte, 0, len(gzipHeader)+storedHeader+len(head)), gzipHeader...)
		head = append(storedBlock(front, false, head), head...)
		tail = append(storedBlock(make([]byte, 0, storedHeader+len(tail)+8), true, tail), tail...)
		tail = binary.LittleEndian.AppendUint32(tail, sum)
		tail = binary.LittleEndian.AppendUint32(tail, uint32(size))
	}
	parts = slices.Concat([][]byte{head}, p.content, [][]byte{tail})
	for _, part := range parts {
		length += len(part)
	}
	return length, parts
}

// storedHeader is the size of the header of an uncompressed block.
const storedHeader = 5

// storedBlock appends the header of an uncompressed block that begins on a byte boundary,
// see RFC 1951, 3.2.4.
func storedBlock(dst []byte, last bool, content []byte) []byte {
	var first byte
	if last {
		first = 1
	}
	dst = binary.LittleEndian.AppendUint16(append(dst, first), uint16(len(content)))
	return binary.LittleEndian.AppendUint16(dst, ^uint16(len(content)))
}

// joinedSum returns the CRC-32 of the concatenation of two texts, given their sums a and
// b and the length n of the second. With the sums as polynomials over GF(2) in which the
// highest bit is the constant term, it is a·x^(8n) + b modulo that of CRC-32.
func joinedSum(a, b uint32, n int64) uint32 {
	shift, power := uint32(1)<<31, uint32(1)<<23 // 1, and x^8
	for ; n > 0; n >>= 1 {
		if n&1 != 0 {
			shift = times(shift, power)
		}
		power = times(power, power)
	}
	return times(a, shift) ^ b
}

// times multiplies two polynomials modulo that of CRC-32.
func times(a, b uint32) uint32 {
	var product uint32
	for bit := uint32(1) << 31; bit != 0; bit >>= 1 {
		if a&bit != 0 {
			product ^= b
		}
		if b&1 != 0 {
			b = b>>1 ^ crc32.IEEE
		} else {
			b >>= 1
		}
	}
	return product
}
