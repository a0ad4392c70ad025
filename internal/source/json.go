package source

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "sigs.k8s.io/json"

	"github.com/tidings-io/tidings/internal/codec"
)

var schemaless schema.GroupResource

// jsonReader reads one JSON value after the other off a stream, none of which
// may take more than maxMessage.
type jsonReader struct {
	*json.Decoder
	left *allowance
}

func newJSONReader(r io.Reader) jsonReader {
	left := &allowance{r: r, left: maxMessage}
	return jsonReader{json.NewDecoder(left), left}
}

// value reads the next value.
func (in jsonReader) value(into any) error {
	in.left.left = maxMessage
	return truncated(in.Decode(into))
}

// token reads the next bracket, name or simple value.
func (in jsonReader) token() (json.Token, error) {
	in.left.left = maxMessage
	token, err := in.Token()
	return token, truncated(err)
}

// allowance is a reader that ends with an error where an object gets too big.
type allowance struct {
	r    io.Reader
	left uint64
}

func (a *allowance) Read(p []byte) (int, error) {
	if a.left == 0 {
		return 0, fmt.Errorf("an object of more than %d bytes is over the limit", maxMessage)
	}
	n, err := a.r.Read(p[:min(uint64(len(p)), a.left)])
	a.left -= uint64(n)
	return n, err
}

// readJSONList walks a list as it arrives and calls visit with the bytes of
// each item, which are valid during the call. What does not have items is no
// list, not an empty one: taken for one, a stray answer of some proxy would
// empty the store.
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
			if err := in.items(&raw, visit); err != nil {
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
	// Reading on to the end verifies a compressed body's checksum and leaves
	// the connection fit for the next request.
	if rest, err := in.Token(); err == nil {
		return meta, fmt.Errorf("the list is followed by %v", rest)
	} else if !errors.Is(err, io.EOF) {
		return meta, err
	}
	return meta, nil
}

// items walks the array of items; null stands for an empty one.
func (in jsonReader) items(raw *json.RawMessage, visit func([]byte) error) error {
	open, err := in.token()
	if err != nil {
		return err
	}
	if open == nil {
		return nil
	}
	if open != json.Delim('[') {
		return fmt.Errorf("items of the list: an array was expected, not %v", open)
	}
	for in.More() {
		if err := in.value(raw); err != nil {
			return err
		}
		if err := visit(*raw); err != nil {
			return err
		}
	}
	return in.expect(']')
}

func (in jsonReader) expect(want json.Delim) error {
	got, err := in.token()
	if err != nil {
		return err
	}
	if got != want {
		return fmt.Errorf("a list was expected, with %v where %v is", want, got)
	}
	return nil
}

// decodeMeta reads one of the API machinery's own types.
func decodeMeta(format codec.Format, raw []byte, into interface{ Unmarshal([]byte) error }) error {
	if format == codec.Protobuf {
		return into.Unmarshal(raw)
	}
	return utiljson.UnmarshalCaseSensitivePreserveInts(raw, into)
}

// truncated makes the end of a stream an error where there should be more.
func truncated(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
