package source

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
)

// readJSONWatch calls visit with the type and object of each event until the stream
// ends. The object is only valid during the call, and visit must check that it is
// JSON. readJSONWatch calls idle before it waits for more input.
func readJSONWatch(r io.Reader, visit func(kind string, raw []byte) error, idle func() error) error {
	in := &frameReader{r: r}
	for {
		frame, err := in.next(idle)
		switch {
		case errors.Is(err, io.EOF):
			return nil // the end of the stream between two events, not within one
		case err != nil:
			return err
		}
		kind, object, err := frame.event()
		if err != nil {
			return err
		}
		if err := visit(kind, object); err != nil {
			return err
		}
	}
}

// frameReader splits a stream into JSON objects. It scans for brackets and quotes
// only, which takes a tenth of the time of parsing. An object that does not end with
// its line may be corrupt, and a missing bracket or quote would make it swallow all
// objects after it. It is parsed by encoding/json instead.
type frameReader struct {
	r      io.Reader
	buffer []byte
	data   []byte // the part of buffer that next has not returned yet
}

// frame is an object. inner is the end of its only member that is an object or an
// array, or 0 if there are several or none.
type frame struct {
	raw   []byte
	inner int
}

// next returns the next object, valid until the next call.
func (in *frameReader) next(idle func() error) (frame, error) {
	first, err := in.peek(idle)
	if err != nil {
		return frame{}, err
	}
	if first != '{' {
		return frame{}, fmt.Errorf("an event of a watch was expected, a JSON object, not %.20q", in.data)
	}
	var f frame
	depth, groups, quoted := 0, 0, false
	line := 0 // length of the prefix known to have no newline
	for at := 0; ; {
		for b := in.data; at < len(b); {
			if quoted {
				for at < len(b) && b[at] != '"' && b[at] != '\\' {
					at++
				}
				if at < len(b) && b[at] == '\\' {
					at += 2 // the escaped byte may not have been read yet
				} else if at < len(b) {
					at, quoted = at+1, false
				}
				continue
			}
			c := b[at]
			at++
			switch c {
			case '"':
				quoted = true
			case '{', '[':
				depth++
			case '}', ']':
				if depth--; depth == 1 {
					groups++
					f.inner = at
				}
				if depth > 0 {
					continue
				}
				f.raw, in.data = b[:at], b[at:]
				if groups != 1 {
					f.inner = 0
				}
				return f, nil
			}
		}
		if bytes.IndexByte(in.data[line:], '\n') >= 0 {
			return in.nextDecoded()
		}
		line = len(in.data)
		if uint64(len(in.data)) >= maxMessage {
			return f, fmt.Errorf("an object of more than %d bytes is over the limit", maxMessage)
		}
		if err := in.more(); err != nil {
			return f, truncated(err)
		}
	}
}

// peek returns the next byte that is not white space, without reading it.
func (in *frameReader) peek(idle func() error) (byte, error) {
	for {
		if in.data = bytes.TrimLeft(in.data, " \t\r\n"); len(in.data) > 0 {
			return in.data[0], nil
		}
		if err := idle(); err != nil {
			return 0, err
		}
		if err := in.more(); err != nil {
			return 0, err
		}
	}
}

// elements reads an array to its end, after its opening bracket, and calls visit with
// each element, which is only valid during the call.
func (in *frameReader) elements(visit func(raw []byte) error) error {
	busy := func() error { return nil }
	for after := byte('['); ; in.data = in.data[1:] {
		c, err := in.peek(busy)
		if err != nil {
			return truncated(err)
		}
		if after == '[' && c == ']' {
			in.data = in.data[1:]
			return nil
		}
		element := in.nextDecoded
		if c == '{' {
			element = func() (frame, error) { return in.next(busy) }
		}
		f, err := element()
		if err != nil {
			return err
		}
		if err := visit(f.raw); err != nil {
			return err
		}
		switch after, err = in.peek(busy); {
		case err != nil:
			return truncated(err)
		case after == ']':
			in.data = in.data[1:]
			return nil
		case after != ',':
			return fmt.Errorf("an item of the list is followed by %q", after)
		}
	}
}

// nextDecoded is next by encoding/json, which returns an error at the first invalid
// byte.
func (in *frameReader) nextDecoded() (frame, error) {
	left := &sizeLimit{r: in.r, left: maxMessage}
	decoder := json.NewDecoder(io.MultiReader(bytes.NewReader(in.data), left))
	var f frame
	if err := decoder.Decode((*json.RawMessage)(&f.raw)); err != nil {
		return f, truncated(err)
	}
	rest, err := io.ReadAll(decoder.Buffered())
	in.buffer, in.data = rest, rest
	return f, err
}

// more reads at least one byte, or returns an error.
func (in *frameReader) more() error {
	const least, usual = 4 << 10, 64 << 10
	switch {
	case len(in.data) == 0 && len(in.buffer) > maxIdleBuffer, len(in.buffer) == 0:
		in.buffer = make([]byte, least) // do not keep the buffer of one big object for the rest of the watch
	case len(in.data) == len(in.buffer), len(in.buffer) < usual && len(in.data) > len(in.buffer)/2:
		in.buffer = slices.Grow(in.buffer, len(in.buffer))[:2*len(in.buffer)]
	}
	have := copy(in.buffer, in.data)
	for range 100 {
		n, err := in.r.Read(in.buffer[have:])
		if n > 0 {
			in.data = in.buffer[:have+n]
			return nil // the next Read returns the error again
		}
		if err != nil {
			in.data = in.buffer[:have]
			return err
		}
	}
	return io.ErrNoProgress
}

// event returns the type and the object of a watch event.
func (f frame) event() (kind string, object []byte, err error) {
	// The fast path, for events as API servers write them: {"type":"ADDED","object":{…}}.
	if head, ok := bytes.CutPrefix(f.raw[:f.inner], []byte(`{"type":"`)); ok && string(bytes.TrimSpace(f.raw[f.inner:])) == "}" {
		for _, kind := range [...]string{"ADDED", "MODIFIED", "DELETED"} {
			if rest, ok := bytes.CutPrefix(head, []byte(kind)); ok {
				if object, ok := bytes.CutPrefix(rest, []byte(`","object":`)); ok && object[0] == '{' {
					return kind, object, nil
				}
			}
		}
	}
	var event struct {
		Type   string          `json:"type"`
		Object json.RawMessage `json:"object"`
	}
	err = json.Unmarshal(f.raw, &event)
	return event.Type, event.Object, err
}
