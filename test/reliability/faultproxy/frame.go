package faultproxy

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Frame is the encoded form of one event of a watch.
type Frame struct {
	// Type is ADDED, MODIFIED, DELETED, BOOKMARK or ERROR.
	Type string
	// Raw is the whole frame: with its length if it is protobuf, with its line
	// feed if it is JSON.
	Raw []byte

	protobuf bool
	object   []byte
}

var protobufMagic = []byte("k8s\x00")

const maxFrame = 64 << 20

// readFrame reads the next frame of a watch.
func readFrame(r *bufio.Reader, protobuf bool) (*Frame, error) {
	if !protobuf {
		line, err := r.ReadBytes('\n')
		if err != nil {
			return nil, err
		}
		var event struct {
			Type   string
			Object json.RawMessage
		}
		if err := json.Unmarshal(line, &event); err != nil {
			return nil, err
		}
		return &Frame{Type: event.Type, Raw: line, object: event.Object}, nil
	}
	var length [4]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return nil, err
	}
	size := binary.BigEndian.Uint32(length[:])
	if size > maxFrame {
		return nil, fmt.Errorf("a frame of %d bytes", size)
	}
	raw := make([]byte, 4+size)
	copy(raw, length[:])
	if _, err := io.ReadFull(r, raw[4:]); err != nil {
		return nil, err
	}
	// In some versions the event is in an envelope of its own.
	var event metav1.WatchEvent
	if err := event.Unmarshal(raw[4:]); err != nil {
		return nil, err
	}
	return &Frame{Type: event.Type, Raw: raw, protobuf: true, object: event.Object.Raw}, nil
}

// Meta is the metadata of the frame's object.
func (f *Frame) Meta() (metav1.ObjectMeta, error) {
	var object metav1.PartialObjectMetadata
	if !f.protobuf {
		err := json.Unmarshal(f.object, &object)
		return object.ObjectMeta, err
	}
	rest, ok := bytes.CutPrefix(f.object, protobufMagic)
	if !ok {
		return object.ObjectMeta, errors.New("not Kubernetes protobuf")
	}
	var envelope runtime.Unknown
	if err := envelope.Unmarshal(rest); err != nil {
		return object.ObjectMeta, err
	}
	err := object.Unmarshal(envelope.Raw) // the metadata of any kind reads as this
	return object.ObjectMeta, err
}

// EndsInitialEvents reports whether the frame is the bookmark after the initial
// events.
func (f *Frame) EndsInitialEvents() bool {
	if f.Type != "BOOKMARK" {
		return false
	}
	meta, err := f.Meta()
	return err == nil && meta.Annotations[metav1.InitialEventsAnnotationKey] == "true"
}

// errorFrame is an ERROR event in the encoding of a stream.
func errorFrame(protobuf bool, status metav1.Status) (*Frame, error) {
	status.APIVersion, status.Kind = "v1", "Status"
	if !protobuf {
		raw, err := json.Marshal(map[string]any{"type": "ERROR", "object": status})
		return &Frame{Type: "ERROR", Raw: append(raw, '\n')}, err
	}
	return protobufFrame("ERROR", "v1", "Status", &status)
}

// bookmarkFrame is a bookmark of a kind of objects at a version.
func bookmarkFrame(protobuf bool, like runtime.TypeMeta, version string) (*Frame, error) {
	mark := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{ResourceVersion: version}}
	if !protobuf {
		mark.APIVersion, mark.Kind = like.APIVersion, like.Kind
		raw, err := json.Marshal(map[string]any{"type": "BOOKMARK", "object": mark})
		return &Frame{Type: "BOOKMARK", Raw: append(raw, '\n')}, err
	}
	return protobufFrame("BOOKMARK", like.APIVersion, like.Kind, mark)
}

func protobufFrame(kind, apiVersion, objectKind string, object interface{ Marshal() ([]byte, error) }) (*Frame, error) {
	raw, err := object.Marshal()
	if err != nil {
		return nil, err
	}
	envelope, err := (&runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: apiVersion, Kind: objectKind}, Raw: raw}).Marshal()
	if err != nil {
		return nil, err
	}
	event, err := (&metav1.WatchEvent{Type: kind, Object: runtime.RawExtension{Raw: append(bytes.Clone(protobufMagic), envelope...)}}).Marshal()
	if err != nil {
		return nil, err
	}
	return &Frame{Type: kind, Raw: append(binary.BigEndian.AppendUint32(nil, uint32(len(event))), event...), protobuf: true}, nil
}

// typeMeta is apiVersion and kind of the frame's object.
func (f *Frame) typeMeta() (meta runtime.TypeMeta) {
	if !f.protobuf {
		_ = json.Unmarshal(f.object, &meta)
		return meta
	}
	var envelope runtime.Unknown
	if rest, ok := bytes.CutPrefix(f.object, protobufMagic); ok && envelope.Unmarshal(rest) == nil {
		meta = envelope.TypeMeta
	}
	return meta
}

func isProtobuf(contentType string) bool {
	return strings.HasPrefix(contentType, "application/vnd.kubernetes.protobuf")
}
