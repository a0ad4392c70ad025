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

// readJSONList walks a list as it arrives and calls visit with the bytes of
// each item, which are valid during the call.
func readJSONList(r io.Reader, visit func(raw []byte) error) (metav1.ListMeta, error) {
	var meta metav1.ListMeta
	dec := json.NewDecoder(r)
	if err := expect(dec, '{'); err != nil {
		return meta, err
	}
	var raw json.RawMessage
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return meta, truncated(err)
		}
		switch name {
		case "metadata":
			if err := dec.Decode(&meta); err != nil {
				return meta, fmt.Errorf("metadata of the list: %w", truncated(err))
			}
		case "items":
			if err := readItems(dec, &raw, visit); err != nil {
				return meta, err
			}
		default:
			if err := dec.Decode(&raw); err != nil {
				return meta, truncated(err)
			}
		}
	}
	return meta, expect(dec, '}')
}

// readItems walks the array of items; null stands for an empty one.
func readItems(dec *json.Decoder, raw *json.RawMessage, visit func([]byte) error) error {
	open, err := dec.Token()
	if err != nil {
		return truncated(err)
	}
	if open == nil {
		return nil
	}
	if open != json.Delim('[') {
		return fmt.Errorf("items of the list: an array was expected, not %v", open)
	}
	for dec.More() {
		if err := dec.Decode(raw); err != nil {
			return truncated(err)
		}
		if err := visit(*raw); err != nil {
			return err
		}
	}
	return expect(dec, ']')
}

func expect(dec *json.Decoder, want json.Delim) error {
	got, err := dec.Token()
	if err != nil {
		return truncated(err)
	}
	if got != want {
		return fmt.Errorf("a list was expected, with %v where %v is", want, got)
	}
	return nil
}

// readJSONWatch calls visit with the type and object of each event until the
// stream ends.
func readJSONWatch(r io.Reader, visit func(kind string, raw []byte) error) error {
	dec := json.NewDecoder(r)
	for {
		var frame struct {
			Type   string          `json:"type"`
			Object json.RawMessage `json:"object"`
		}
		if err := dec.Decode(&frame); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return truncated(err)
		}
		if err := visit(frame.Type, frame.Object); err != nil {
			return err
		}
	}
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
