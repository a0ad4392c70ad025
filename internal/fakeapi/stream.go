package fakeapi

import (
	"bytes"
	"io"
	"net/http"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// stream writes the events of one watch. After an error it drops the rest.
type stream struct {
	w      http.ResponseWriter
	format format
	call   *call
	object bytes.Buffer // the encoded object
	frame  bytes.Buffer // the framed event around it
	framer io.Writer
	cutIn  int // whole frames left until the connection breaks, if positive at the start
	cuts   bool
	err    error
}

// newStream sends the header of the response at once, so the client knows that its
// watch is open before the first event.
func newStream(w http.ResponseWriter, f format, c *call) *stream {
	s := &stream{w: w, format: f, call: c}
	s.framer = f.info.StreamSerializer.Framer.NewFrameWriter(&s.frame)
	if c.fault != nil && c.fault.CutAfterEvents != 0 {
		s.cuts, s.cutIn = true, max(c.fault.CutAfterEvents, 0)
	}
	mediaType := f.info.MediaType
	if mediaType != runtime.ContentTypeJSON {
		mediaType += ";stream=watch"
	}
	w.Header().Set("Content-Type", mediaType)
	w.Header().Set("Cache-Control", "no-cache, private")
	w.WriteHeader(http.StatusOK)
	s.flush()
	return s
}

func (s *stream) send(kind watch.EventType, obj runtime.Object) {
	if s.err != nil {
		return
	}
	s.object.Reset()
	if s.err = s.format.info.Serializer.Encode(obj, &s.object); s.err != nil {
		return
	}
	s.frame.Reset()
	event := &metav1.WatchEvent{Type: string(kind), Object: runtime.RawExtension{Raw: s.object.Bytes()}}
	if s.err = s.format.info.StreamSerializer.Serializer.Encode(event, s.framer); s.err != nil {
		return
	}
	s.write()
	if s.call.fault != nil && s.call.fault.Twice && s.err == nil {
		s.write()
	}
}

// write writes the frame, or breaks the connection in the middle of it.
func (s *stream) write() {
	if s.cuts && s.cutIn == 0 {
		_, _ = s.w.Write(s.frame.Bytes()[:s.frame.Len()/2])
		s.flush()
		panic(http.ErrAbortHandler)
	}
	s.cutIn--
	_, s.err = s.w.Write(s.frame.Bytes())
}

// sendBookmark tells the client that it has seen everything up to rev.
func (s *stream) sendBookmark(rev uint64, annotations map[string]string) {
	obj := s.call.res.empty()
	obj.SetResourceVersion(strconv.FormatUint(rev, 10))
	obj.SetAnnotations(annotations)
	s.send(watch.Bookmark, s.format.single(s.call.res, obj))
}

func (s *stream) sendStatus(status *metav1.Status) {
	s.send(watch.Error, status)
}

func (s *stream) flush() {
	if f, ok := s.w.(http.Flusher); ok {
		f.Flush()
	}
}
