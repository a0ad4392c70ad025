package faultproxy

import (
	"bufio"
	"fmt"
	"io"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
)

// Stream is a watch that the proxy handles.
type Stream struct {
	*Exchange
	protobuf bool
	kind     runtime.TypeMeta // of the last object
	ended    bool
}

// Send sends a frame.
func (s *Stream) Send(f *Frame) { s.Write(f.Raw) }

// Write sends bytes unchanged.
func (s *Stream) Write(raw []byte) {
	if _, err := s.W.Write(raw); err != nil {
		s.Abort()
	}
	s.Flush()
}

// End ends the watch cleanly.
func (s *Stream) End() { s.ended = true }

// Error sends an ERROR event.
func (s *Stream) Error(err apierrors.APIStatus) {
	f, broken := errorFrame(s.protobuf, err.Status())
	if broken != nil {
		panic(fmt.Sprintf("encode an error event: %v", broken))
	}
	s.Send(f)
}

// Bookmark sends a bookmark at a version.
func (s *Stream) Bookmark(version string) {
	f, broken := bookmarkFrame(s.protobuf, s.kind, version)
	if broken != nil {
		panic(fmt.Sprintf("encode a bookmark: %v", broken))
	}
	s.Send(f)
}

// Frames calls each with every frame of a watch and its number, from 0. each decides
// what to send to the client. Responses that are not watches are passed on unchanged.
func Frames(each func(s *Stream, n int, f *Frame)) Action {
	return func(x *Exchange) {
		x.HTTP.Header.Del("Accept-Encoding")
		resp := x.Forward()
		if resp == nil {
			return
		}
		defer resp.Body.Close()
		x.Head(resp, false)
		if x.Request.Verb != "watch" || resp.StatusCode != http.StatusOK {
			x.copy(resp.Body)
			return
		}
		s := &Stream{Exchange: x, protobuf: isProtobuf(resp.Header.Get("Content-Type"))}
		in := bufio.NewReader(resp.Body)
		for n := 0; !s.ended; n++ {
			f, err := readFrame(in, s.protobuf)
			if err == io.EOF {
				return
			}
			if err != nil {
				x.Abort()
			}
			if f.Type != "ERROR" {
				s.kind = f.typeMeta()
			}
			each(s, n, f)
		}
	}
}

// after passes on n frames and then handles the next.
func after(n int, then func(*Stream, *Frame)) Action {
	return Frames(func(s *Stream, i int, f *Frame) {
		if i < n {
			s.Send(f)
			return
		}
		then(s, f)
	})
}

// CutFrame breaks a watch after n whole frames, in the middle of the next.
func CutFrame(n int) Action {
	return after(n, func(s *Stream, f *Frame) {
		s.Write(f.Raw[:len(f.Raw)/2])
		s.Abort()
	})
}

// TruncateFrame ends a watch cleanly after n whole frames, in the middle of the next.
func TruncateFrame(n int) Action {
	return after(n, func(s *Stream, f *Frame) {
		s.Write(f.Raw[:len(f.Raw)/2])
		s.End()
	})
}

// GarbleFrame corrupts the frame after n whole ones. The rest of the watch is
// unchanged.
func GarbleFrame(n int) Action {
	return Frames(func(s *Stream, i int, f *Frame) {
		if i == n {
			for j := 4; j < len(f.Raw)-1; j++ { // not the length of one in protobuf, nor the end of one in JSON
				f.Raw[j] = 0xff
			}
		}
		s.Send(f)
	})
}

// EndAfter ends a watch cleanly after n frames.
func EndAfter(n int) Action { return after(n, func(s *Stream, _ *Frame) { s.End() }) }

// ErrorEvent ends a watch with an ERROR event after n frames.
func ErrorEvent(n int, err apierrors.APIStatus) Action {
	return after(n, func(s *Stream, _ *Frame) {
		s.Error(err)
		s.End()
	})
}

// StallAfter sends nothing more of a watch after n frames, on an open connection,
// until the rule is removed. Then it breaks the connection.
func StallAfter(n int) Action {
	return after(n, func(s *Stream, _ *Frame) {
		s.Wait()
		s.Abort()
	})
}

// Twice sends every frame twice.
func Twice() Action {
	return Frames(func(s *Stream, _ int, f *Frame) {
		s.Send(f)
		s.Send(f)
	})
}

// DropBookmarks omits all bookmarks, or all but the one that ends the initial events.
func DropBookmarks(all bool) Action {
	return Frames(func(s *Stream, _ int, f *Frame) {
		if f.Type != "BOOKMARK" || !all && f.EndsInitialEvents() {
			s.Send(f)
		}
	})
}

// BookmarkAfter inserts a bookmark of an invented version after n frames.
func BookmarkAfter(n int, version string) Action {
	return Frames(func(s *Stream, i int, f *Frame) {
		s.Send(f)
		if i == n {
			s.Bookmark(version)
		}
	})
}
