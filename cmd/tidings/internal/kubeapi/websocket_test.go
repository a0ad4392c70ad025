package kubeapi_test

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
	"github.com/tidings-io/tidings/cmd/tidings/internal/server"
)

// FuzzWebSocketFrames sends arbitrary bytes in place of the frames of a watch's client. The
// server answers with frames, sends events until it closes the connection, and the watch
// ends with its client.
func FuzzWebSocketFrames(f *testing.F) {
	mask := "\x01\x02\x03\x04"
	for _, seed := range []string{
		"", "\x81\x80" + mask, "\x81\x83" + mask + "abc", "\x89\x84" + mask + "ping", "\x8a\x80" + mask, "\x88\x80" + mask, "\x88\x82" + mask + "\x02\xe9",
		"\x81\x03abc", // not masked
		"\x01\x81" + mask + "a" + "\x80\x81" + mask + "b",    // in two
		"\x80\x81" + mask + "b",                              // the second without a first
		"\x82\xff\x7f\xff\xff\xff\xff\xff\xff\xff" + mask,    // 2^63-1 bytes
		"\x89\xff\xff\xff\xff\xff\xff\xff\xff\xff" + mask,    // a ping of as many
		"\x89\xfe\xff\xff" + mask + strings.Repeat("x", 600), // a ping that is too long, and cut off
		"\xff\xff", "\x8b\x80" + mask, "\xf1\x80" + mask, strings.Repeat("\x89\x80"+mask, 300), strings.Repeat("\x01\x80"+mask, 300), "GET / HTTP/1.1\r\n\r\n",
	} {
		f.Add([]byte(seed))
	}
	r, c := inMemory(f, mirror.Options{}, server.Options{})
	put(f, c, "a", "1")
	f.Fuzz(func(t *testing.T, sent []byte) {
		conn, err := net.Dial("tcp", strings.TrimPrefix(r.ours.config.Host, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(time.Minute))
		fmt.Fprintf(conn, "GET %s?watch=1&resourceVersion=0 HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nOrigin: http://localhost\r\n\r\n", configMaps)
		in := bufio.NewReader(conn)
		resp, err := http.ReadResponse(in, nil)
		if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
			t.Fatalf("%v %v", resp, err)
		}
		if _, err := conn.Write(sent); err != nil && !hungUp(err) {
			t.Fatal(err)
		}
		if err := conn.(*net.TCPConn).CloseWrite(); err != nil && !hungUp(err) {
			t.Fatal(err)
		}
		for {
			opcode, payload, err := frame(in)
			if err == io.EOF || hungUp(err) {
				return
			}
			if err != nil {
				t.Fatalf("%q is answered with what is no frame: %v", sent, err)
			}
			switch opcode {
			case 0x81: // an event
				if e := gjson.ParseBytes(payload); !gjson.ValidBytes(payload) || e.Get("type").Str != "ADDED" {
					t.Fatalf("%q is answered with %q", sent, payload)
				}
			case 0x88, 0x8a: // good bye, pong
			default:
				t.Fatalf("%q is answered with a frame of kind %#x", sent, opcode)
			}
		}
	})
}

// hungUp reports whether the server has closed the connection before reading all.
func hungUp(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && !op.Timeout()
}

// frame reads a frame from a server.
func frame(in *bufio.Reader) (opcode byte, payload []byte, err error) {
	if opcode, err = in.ReadByte(); err != nil {
		return 0, nil, err
	}
	short, err := in.ReadByte()
	if err != nil {
		return 0, nil, err
	}
	size := uint64(short)
	switch {
	case short > 127:
		return 0, nil, errors.New("a server masks nothing")
	case short == 126:
		var long uint16
		err = binary.Read(in, binary.BigEndian, &long)
		size = uint64(long)
	case short == 127:
		err = binary.Read(in, binary.BigEndian, &size)
	}
	if err != nil {
		return 0, nil, err
	}
	if size > 1<<20 {
		return 0, nil, fmt.Errorf("a frame of %d bytes", size)
	}
	payload = make([]byte, size)
	_, err = io.ReadFull(in, payload)
	return opcode, payload, err
}
