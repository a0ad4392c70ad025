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

// packed is a part of an answer, made once so that it can be in the middle of many:
// of lists of the same objects only the versions differ, and those are written
// around it. If it is long it is compressed.
type packed struct {
	content  [][]byte
	deflated bool   // the content is whole blocks that end on a byte, of which none is the last
	sum      uint32 // CRC-32 of what was compressed
	size     int64  // of what there is, not compressed
}

// kept is how many bytes the content takes.
func (p *packed) kept() (n int64) {
	for _, part := range p.content {
		n += int64(cap(part))
	}
	return n
}

var deflaters = sync.Pool{New: func() any {
	w, _ := flate.NewWriter(nil, flate.BestSpeed) // a level there is
	return w
}}

// packer packs what is added to it.
type packer struct {
	from int   // what is longer than this is compressed
	most int64 // what is longer than this, compressed, is not packed. 0: no bound
	out  packed
	long int64         // of what has been compressed so far
	to   *flate.Writer // nil until it is longer
}

// errUnshared says that a list is too long to be packed for those who ask for the
// same one again.
var errUnshared = errors.New("kubeapi: the list is too long to be kept")

// piece is the size of the parts in which compressed content is kept: nothing is
// copied as it grows.
const piece = 64 << 10

// sink takes compressed bytes.
type sink struct{ *packer }

func (s sink) Write(p []byte) (int, error) {
	if s.long += int64(len(p)); s.most > 0 && s.long > s.most {
		return 0, errUnshared
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

// add adds a copy.
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

// done returns what has been added. The packer is of no more use.
func (p *packer) done() (*packed, error) {
	var err error
	if p.to != nil {
		err = p.to.Flush()
		p.to.Reset(nil)
		deflaters.Put(p.to)
	}
	if last := len(p.out.content) - 1; last >= 0 {
		p.out.content[last] = bytes.Clone(p.out.content[last]) // with little room to spare
	}
	return &p.out, err
}

// gzipHeader is RFC 1952's, without a name or time, of an unknown system.
var gzipHeader = []byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 4, 255}

// within returns the parts of an answer with what is packed between head and tail,
// and their length: as a gzip stream if it is compressed. Head and tail are stored
// in that as they are, and must be shorter than 64 KB each.
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

// storedHeader is the size of the header of a block that is not compressed.
const storedHeader = 5

// storedBlock appends the header of a block that is not compressed, RFC 1951's
// 3.2.4, for one that begins on a byte.
func storedBlock(dst []byte, last bool, content []byte) []byte {
	var first byte
	if last {
		first = 1
	}
	dst = binary.LittleEndian.AppendUint16(append(dst, first), uint16(len(content)))
	return binary.LittleEndian.AppendUint16(dst, ^uint16(len(content)))
}

// joinedSum is the CRC-32 of two texts, one behind the other, of their own sums
// and the length of the second. With the sums as polynomials over GF(2), in which
// the highest bit is the constant term, that is a·x^(8n) + b modulo the CRC's.
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
