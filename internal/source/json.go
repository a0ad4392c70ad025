package source

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utiljson "sigs.k8s.io/json"

	"github.com/tidings-io/tidings/internal/codec"
)

// jsonReader reads JSON values from a stream, each of at most maxMessage bytes.
type jsonReader struct {
	*json.Decoder
	left *sizeLimit
}

func newJSONReader(r io.Reader) jsonReader {
	left := &sizeLimit{r: r, left: maxMessage}
	return jsonReader{json.NewDecoder(left), left}
}

// value reads the next value.
func (in jsonReader) value(into any) error {
	in.left.left = maxMessage
	return truncated(in.Decode(into))
}

// token reads the next bracket, name or scalar.
func (in jsonReader) token() (json.Token, error) {
	in.left.left = maxMessage
	token, err := in.Token()
	return token, truncated(err)
}

// sizeLimit is a reader that returns an error when an object gets too big.
type sizeLimit struct {
	r    io.Reader
	left uint64
}

func (l *sizeLimit) Read(p []byte) (int, error) {
	if l.left == 0 {
		return 0, fmt.Errorf("an object of more than %d bytes is over the limit", maxMessage)
	}
	n, err := l.r.Read(p[:min(uint64(len(p)), l.left)])
	l.left -= uint64(n)
	return n, err
}

// readJSONList reads a list as it arrives and calls visit with the encoding of each
// item, which is only valid during the call. An answer without items is an error, not
// an empty list: otherwise a stray answer of a proxy would empty the store.
func readJSONList(r io.Reader, visit func(raw []byte) error) (metav1.ListMeta, error) {
	var meta metav1.ListMeta
	in := newJSONReader(r)
	if err := in.expect('{'); err != nil {
		return meta, err
	}
	var raw json.RawMessage
	seen := map[json.Token]bool{}
	for in.More() {
		name, err := in.token()
		if err != nil {
			return meta, err
		}
		if seen[name] {
			return meta, fmt.Errorf("the list has %q twice", name)
		}
		seen[name] = true
		switch name {
		case "metadata":
			if err := in.value(&meta); err != nil {
				return meta, fmt.Errorf("metadata of the list: %w", err)
			}
		case "items":
			if in, err = in.items(visit); err != nil {
				return meta, err
			}
		default:
			if err := in.value(&raw); err != nil {
				return meta, err
			}
		}
	}
	if err := in.expect('}'); err != nil {
		return meta, err
	}
	if !seen["items"] {
		return meta, errors.New("a list was expected, but the answer has no items")
	}
	// Reading to the end verifies a compressed body's checksum and lets the client
	// reuse the connection.
	if rest, err := in.Token(); err == nil {
		return meta, fmt.Errorf("the list is followed by %v", rest)
	} else if !errors.Is(err, io.EOF) {
		return meta, err
	}
	return meta, nil
}

// items reads the array of items; null is an empty one. It returns the reader of what
// follows. visit must check that an item is JSON, see [frameReader].
func (in jsonReader) items(visit func([]byte) error) (jsonReader, error) {
	open, err := in.token()
	if err != nil {
		return in, err
	}
	if open == nil {
		return in, nil
	}
	if open != json.Delim('[') {
		return in, fmt.Errorf("items of the list: an array was expected, not %v", open)
	}
	array := &frameReader{r: io.MultiReader(in.Buffered(), in.left.r)}
	if err := array.elements(visit); err != nil {
		return in, err
	}
	// A json.Decoder cannot begin within an object: let it read the beginning of one.
	begin := `{"":0`
	in = newJSONReader(io.MultiReader(strings.NewReader(begin), bytes.NewReader(array.data), array.r))
	for range 3 {
		if _, err := in.token(); err != nil {
			return in, err
		}
	}
	return in, nil
}

func (in jsonReader) expect(want json.Delim) error {
	got, err := in.token()
	if err != nil {
		return err
	}
	if got != want {
		return fmt.Errorf("not a list: %v was expected, not %v", want, got)
	}
	return nil
}

// decodeMeta decodes one of the API machinery's own types.
func decodeMeta(format codec.Format, raw []byte, into interface{ Unmarshal([]byte) error }) error {
	if format == codec.Protobuf {
		return into.Unmarshal(raw)
	}
	return utiljson.UnmarshalCaseSensitivePreserveInts(raw, into)
}

// truncated turns io.EOF into io.ErrUnexpectedEOF, where more was expected.
func truncated(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
