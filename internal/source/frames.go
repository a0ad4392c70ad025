package source

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
)

// readJSONWatch calls visit with the type and object of each event until the
// stream ends. The bytes are valid during the call. Whether an object is JSON is
// for visit to judge. Before it waits for more to come it calls idle.
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

// frameReader cuts a stream of JSON objects into these. It looks at brackets and
// quotes only, which takes a tenth of the time that it takes to parse JSON. An
// object that is not over with its line is read with care: it may be spoilt, and
// one bracket or quote less would have it swallow all that follow.
type frameReader struct {
	r    io.Reader
	room []byte
	buf  []byte // what of room has been read and not been handed out
}

// frame is an object, and where within it what is first in brackets of its own
// ends, if nothing else is.
type frame struct {
	raw   []byte
	inner int
}

// next returns the next object, valid until the next call.
func (in *frameReader) next(idle func() error) (frame, error) {
	for {
		if in.buf = bytes.TrimLeft(in.buf, " \t\r\n"); len(in.buf) > 0 {
			break
		}
		if err := idle(); err != nil {
			return frame{}, err
		}
		if err := in.more(); err != nil {
			return frame{}, err
		}
	}
	if in.buf[0] != '{' {
		return frame{}, fmt.Errorf("an event of a watch was expected, a JSON object, not %.20q", in.buf)
	}
	var f frame
	depth, groups, quoted := 0, 0, false
	line := 0 // how much of it has no end of a line
	for at := 0; ; {
		for b := in.buf; at < len(b); {
			if quoted {
				for at < len(b) && b[at] != '"' && b[at] != '\\' {
					at++
				}
				if at < len(b) && b[at] == '\\' {
					at += 2 // the second of them may still have to be read
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
				f.raw, in.buf = b[:at], b[at:]
				if groups != 1 {
					f.inner = 0
				}
				return f, nil
			}
		}
		if bytes.IndexByte(in.buf[line:], '\n') >= 0 {
			return in.careful()
		}
		line = len(in.buf)
		if uint64(len(in.buf)) >= maxMessage {
			return f, fmt.Errorf("an object of more than %d bytes is over the limit", maxMessage)
		}
		if err := in.more(); err != nil {
			return f, truncated(err)
		}
	}
}

// careful reads an object as JSON is read, so that an error comes as soon as it is
// none.
func (in *frameReader) careful() (frame, error) {
	left := &allowance{r: in.r, left: maxMessage}
	decoder := json.NewDecoder(io.MultiReader(bytes.NewReader(in.buf), left))
	var f frame
	if err := decoder.Decode((*json.RawMessage)(&f.raw)); err != nil {
		return f, truncated(err)
	}
	rest, err := io.ReadAll(decoder.Buffered())
	in.room, in.buf = rest, rest
	return f, err
}

// more reads what there is, at least something, or returns an error.
func (in *frameReader) more() error {
	const least, usual = 4 << 10, 64 << 10
	switch {
	case len(in.buf) == 0 && len(in.room) > roomy, len(in.room) == 0:
		in.room = make([]byte, least) // one big object must not cost as much for as long as a watch lasts
	case len(in.buf) == len(in.room), len(in.room) < usual && len(in.buf) > len(in.room)/2:
		in.room = slices.Grow(in.room, len(in.room))[:2*len(in.room)]
	}
	have := copy(in.room, in.buf)
	for range 100 {
		n, err := in.r.Read(in.room[have:])
		if n > 0 {
			in.buf = in.room[:have+n]
			return nil // an error comes again
		}
		if err != nil {
			in.buf = in.room[:have]
			return err
		}
	}
	return io.ErrNoProgress
}

// event finds the type and the object in an event of a watch.
func (f frame) event() (kind string, object []byte, err error) {
	// As API servers write it, and nearly always: {"type":"ADDED","object":{…}}.
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
