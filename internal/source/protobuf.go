package source

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// The protobuf encoding of the Kubernetes API: four bytes of magic, then a
// runtime.Unknown whose raw field holds the message. See
// k8s.io/apimachinery/pkg/runtime/serializer/protobuf.
var magic = []byte{'k', '8', 's', 0}

// maxMessage is the maximum size of one object or frame. etcd's limit for a request is
// 1.5 MB by default. Tests lower it.
var maxMessage uint64 = 128 << 20

// maxIdleBuffer is the largest buffer that is kept for the next object.
const maxIdleBuffer = 256 << 10

// Field numbers of the messages that are decoded here.
const (
	unknownRaw   protowire.Number = 2
	listMetadata protowire.Number = 1
	listItems    protowire.Number = 2
	eventType    protowire.Number = 1
	eventObject  protowire.Number = 2
	extensionRaw protowire.Number = 1
)

// unwrapUnknown returns the message in an envelope.
func unwrapUnknown(b []byte) (runtime.TypeMeta, []byte, error) {
	rest, ok := bytes.CutPrefix(b, magic)
	if !ok {
		return runtime.TypeMeta{}, nil, fmt.Errorf("not Kubernetes protobuf: it begins with %.4q", b)
	}
	var envelope runtime.Unknown
	if err := envelope.Unmarshal(rest); err != nil {
		return runtime.TypeMeta{}, nil, fmt.Errorf("protobuf envelope: %w", err)
	}
	return envelope.TypeMeta, envelope.Raw, nil
}

// readProtobufList reads a list as it arrives and calls visit with the encoding of
// each item, which is only valid during the call.
func readProtobufList(r io.Reader, visit func(raw []byte) error) (metav1.ListMeta, error) {
	var meta metav1.ListMeta
	in := &messageReader{r: bufio.NewReaderSize(r, 64<<10)}
	head, err := in.bytes(uint64(len(magic)))
	if err != nil {
		return meta, err
	}
	if !bytes.Equal(head, magic) {
		return meta, fmt.Errorf("not Kubernetes protobuf: it begins with %.4q", head)
	}
	// The envelope's raw field is the list. Its other fields are skipped.
	seen := false
	for {
		f, err := in.field()
		if errors.Is(err, io.EOF) && seen {
			return meta, nil
		}
		if err != nil {
			return meta, fmt.Errorf("protobuf envelope: %w", truncated(err))
		}
		switch {
		case f.number != unknownRaw:
			err = in.skipField(f)
		case f.kind != protowire.BytesType || seen:
			err = errors.New("one message was expected in it")
		default:
			seen = true
			meta, err = in.list(f.size, visit)
		}
		if err != nil {
			return meta, fmt.Errorf("protobuf envelope: %w", err)
		}
	}
}

// list reads the fields of a list message of the given size. A message without
// metadata is an error: lists of the Kubernetes API always have some.
func (in *messageReader) list(size uint64, visit func([]byte) error) (metav1.ListMeta, error) {
	var meta metav1.ListMeta
	end, seen := in.offset+size, false // after an overflow, end < offset
	for in.offset < end {
		f, err := in.field()
		switch {
		case err != nil:
			err = truncated(err)
		case f.number == listItems:
			err = in.message(f, visit)
		case f.number == listMetadata:
			seen = true
			err = in.message(f, meta.Unmarshal)
		default:
			err = in.skipField(f)
		}
		if err != nil {
			return meta, fmt.Errorf("protobuf list: %w", err)
		}
	}
	switch {
	case in.offset > end:
		return meta, errors.New("protobuf list: a field reaches beyond its end")
	case !seen:
		return meta, errors.New("a list was expected, but the answer has no metadata of one")
	}
	return meta, nil
}

// readProtobufWatch calls visit with the type and object of each event until
// the stream ends. A frame is four bytes of length, big endian, and that many
// bytes of a metav1.WatchEvent, whose object is in an envelope of its own.
func readProtobufWatch(r io.Reader, visit func(kind string, raw []byte) error, idle func() error) error {
	in := &messageReader{r: bufio.NewReaderSize(r, 64<<10)}
	var length [4]byte
	for {
		if in.r.Buffered() < len(length) {
			if err := idle(); err != nil {
				return err
			}
		}
		if _, err := io.ReadFull(in.r, length[:]); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		frame, err := in.bytes(uint64(binary.BigEndian.Uint32(length[:])))
		if err != nil {
			return err
		}
		kind, raw, err := watchEvent(frame)
		if err != nil {
			return fmt.Errorf("protobuf watch event: %w", err)
		}
		if err := visit(string(kind), raw); err != nil {
			return err
		}
	}
}

// watchEvent returns the type and the object of a metav1.WatchEvent, without copying
// them.
func watchEvent(frame []byte) (kind, object []byte, err error) {
	for len(frame) > 0 {
		number, wire, n := protowire.ConsumeTag(frame)
		if n < 0 {
			return nil, nil, protowire.ParseError(n)
		}
		frame = frame[n:]
		if wire != protowire.BytesType {
			if n = protowire.ConsumeFieldValue(number, wire, frame); n < 0 {
				return nil, nil, protowire.ParseError(n)
			}
			frame = frame[n:]
			continue
		}
		value, n := protowire.ConsumeBytes(frame)
		if n < 0 {
			return nil, nil, protowire.ParseError(n)
		}
		frame = frame[n:]
		switch number {
		case eventType:
			kind = value
		case eventObject:
			if object, err = lastField(value, extensionRaw); err != nil {
				return nil, nil, err
			}
		}
	}
	rest, ok := bytes.CutPrefix(object, magic)
	if !ok {
		return nil, nil, fmt.Errorf("not Kubernetes protobuf: it begins with %.4q", object)
	}
	object, err = lastField(rest, unknownRaw)
	return kind, object, err
}

// lastField returns the value of a length-delimited field, or nil if there is none. Of
// several the last one counts, as always in protobuf.
func lastField(message []byte, wanted protowire.Number) (last []byte, err error) {
	for len(message) > 0 {
		number, wire, n := protowire.ConsumeTag(message)
		if n < 0 {
			return nil, protowire.ParseError(n)
		}
		size := protowire.ConsumeFieldValue(number, wire, message[n:])
		if size < 0 {
			return nil, protowire.ParseError(size)
		}
		if number == wanted {
			if wire != protowire.BytesType {
				return nil, fmt.Errorf("field %d is of wire type %d", number, wire)
			}
			last, _ = protowire.ConsumeBytes(message[n:])
		}
		message = message[n+size:]
	}
	return last, nil
}

// messageReader reads protobuf fields from a stream.
type messageReader struct {
	r      *bufio.Reader
	offset uint64
	buf    bytes.Buffer
}

// field is the tag of a field and, if it is length-delimited, its length.
type field struct {
	number protowire.Number
	kind   protowire.Type
	size   uint64 // if length-delimited
}

// field reads everything of a field up to its value.
func (in *messageReader) field() (field, error) {
	tag, err := in.varint()
	if err != nil {
		return field{}, err
	}
	var f field
	f.number, f.kind = protowire.DecodeTag(tag)
	if f.number < protowire.MinValidNumber {
		return f, fmt.Errorf("invalid field number %d", f.number)
	}
	if f.kind == protowire.BytesType {
		f.size, err = in.varint()
	}
	return f, truncated(err)
}

// message calls read with the value of a field, which must be a message.
func (in *messageReader) message(f field, read func([]byte) error) error {
	if f.kind != protowire.BytesType {
		return fmt.Errorf("field %d is of wire type %d", f.number, f.kind)
	}
	raw, err := in.bytes(f.size)
	if err != nil {
		return err
	}
	return read(raw)
}

// skipField skips the value of a field.
func (in *messageReader) skipField(f field) (err error) {
	switch f.kind {
	case protowire.BytesType:
		err = in.skip(f.size)
	case protowire.VarintType:
		_, err = in.varint()
	case protowire.Fixed32Type:
		err = in.skip(4)
	case protowire.Fixed64Type:
		err = in.skip(8)
	default:
		err = fmt.Errorf("wire type %d is not used by Kubernetes", f.kind)
	}
	return truncated(err)
}

func (in *messageReader) varint() (uint64, error) {
	var v uint64
	for i := 0; i < binary.MaxVarintLen64; i++ {
		b, err := in.r.ReadByte()
		if err != nil {
			if i > 0 {
				err = truncated(err)
			}
			return 0, err
		}
		in.offset++
		v |= uint64(b&0x7f) << (7 * i)
		if b < 0x80 {
			return v, nil
		}
	}
	return 0, errors.New("varint is too long")
}

// bytes reads size bytes, which are valid until the next read. It allocates memory as
// bytes arrive, because the length cannot be trusted.
func (in *messageReader) bytes(size uint64) ([]byte, error) {
	if size > maxMessage {
		return nil, fmt.Errorf("a message of %d bytes is over the limit of %d", size, maxMessage)
	}
	if size <= uint64(in.r.Size()) { // most are
		b, err := in.r.Peek(int(size))
		n, _ := in.r.Discard(len(b))
		in.offset += uint64(n)
		return b, truncated(err)
	}
	in.buf.Reset()
	if in.buf.Cap() > maxIdleBuffer && size < maxIdleBuffer {
		in.buf = bytes.Buffer{} // do not keep the buffer of one big object for the rest of the watch
	}
	n, err := io.CopyN(&in.buf, in.r, int64(size))
	in.offset += uint64(n)
	return in.buf.Bytes(), truncated(err)
}

func (in *messageReader) skip(size uint64) error {
	if size > maxMessage {
		return fmt.Errorf("a field of %d bytes is over the limit of %d", size, maxMessage)
	}
	n, err := io.CopyN(io.Discard, in.r, int64(size))
	in.offset += uint64(n)
	return err
}

// readAll reads the body of one object.
func readAll(r io.Reader) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, int64(maxMessage)+1))
	if err == nil && uint64(len(b)) > maxMessage {
		err = fmt.Errorf("an object of more than %d bytes is over the limit", maxMessage)
	}
	return b, err
}
