package hostile

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

const (
	maxAnswer = 4 << 20          // the rest is not read
	patience  = 15 * time.Second // limits the time of an answer
	// A watch ends after watchIdle without events, or after watchFor.
	watchIdle = 60 * time.Millisecond
	watchFor  = 250 * time.Millisecond
)

// tokenInside is the prefix of a subprotocol that is a token.
const tokenInside = "base64url.bearer.authorization.k8s.io."

// client sends requests to one server over one connection at a time, for one goroutine.
// Unlike net/http, it sends any bytes.
type client struct {
	address string
	tls     *tls.Config // nil: plain HTTP
	conn    net.Conn
	reader  *bufio.Reader
}

var errNoConnection = errors.New("no connection")

// answer is the response to a request.
type answer struct {
	status int // 0: no readable response
	header http.Header
	body   []byte // decompressed
	whole  bool   // all of it was read
	err    error
}

func (c *client) close() {
	if c.conn != nil {
		c.conn.Close()
		c.conn = nil
	}
}

func (c *client) dial() error {
	conn, err := net.DialTimeout("tcp", c.address, patience)
	if err != nil {
		return err
	}
	_ = conn.SetDeadline(time.Now().Add(patience))
	if c.tls != nil {
		conn = tls.Client(conn, c.tls)
	}
	c.conn, c.reader = conn, bufio.NewReader(conn)
	return nil
}

// bytes returns the encoded request.
func (q *request) bytes(target, host, authorization, token string) []byte {
	var b bytes.Buffer
	b.WriteString(q.method + " " + target + " HTTP/1.1\r\n")
	if q.host != "" {
		host = q.host
	}
	b.WriteString("Host: " + host + "\r\n")
	if q.bearer {
		b.WriteString("Sec-WebSocket-Protocol: " + tokenInside + base64.RawURLEncoding.EncodeToString([]byte(token)) + ", base64.binary.k8s.io\r\n")
	} else if authorization != "" {
		b.WriteString("Authorization: " + authorization + "\r\n")
	}
	for _, h := range q.headers {
		b.WriteString(h[0] + ": " + h[1] + "\r\n")
	}
	if q.body != "" {
		b.WriteString("Content-Length: " + strconv.Itoa(len(q.body)) + "\r\n")
	}
	b.WriteString("\r\n" + q.body)
	return b.Bytes()
}

// ask sends a request and reads the answer.
func (c *client) ask(q *request, text []byte) answer {
	for {
		fresh := c.conn == nil
		if fresh {
			if err := c.dial(); err != nil {
				return answer{err: fmt.Errorf("%w: %w", errNoConnection, err)}
			}
		}
		_ = c.conn.SetDeadline(time.Now().Add(patience))
		_, writing := c.conn.Write(text)
		if _, err := c.reader.Peek(1); err != nil {
			c.close()
			if !fresh && !errors.Is(err, os.ErrDeadlineExceeded) {
				continue // it was closed while idle
			}
			return answer{err: errors.Join(err, writing)}
		}
		a := c.read(q)
		if !a.whole || a.header.Get("Connection") == "close" || bytes.ContainsAny(text[:bytes.Index(text, []byte(" HTTP/1.1\r\n"))], "\r\n") {
			c.close()
		}
		return a
	}
}

func (c *client) read(q *request) answer {
	var resp *http.Response
	for {
		var err error
		if resp, err = http.ReadResponse(c.reader, &http.Request{Method: q.method}); err != nil {
			return answer{err: err}
		}
		if resp.StatusCode != http.StatusContinue {
			break
		}
	}
	defer resp.Body.Close()
	if resp.Close {
		resp.Header.Set("Connection", "close")
	}
	a := answer{status: resp.StatusCode, header: resp.Header}
	from := io.Reader(resp.Body)
	idle, until := 2*time.Second, time.Now().Add(patience)
	upgraded := resp.StatusCode == http.StatusSwitchingProtocols
	if upgraded {
		from = c.reader
	}
	if upgraded || q.watch && resp.StatusCode == http.StatusOK {
		idle, until = watchIdle, time.Now().Add(watchFor)
	}
	part := make([]byte, 32<<10)
	for len(a.body) < maxAnswer {
		deadline := time.Now().Add(idle)
		if deadline.After(until) {
			deadline = until
		}
		_ = c.conn.SetReadDeadline(deadline)
		n, err := from.Read(part)
		a.body = append(a.body, part[:n]...)
		if err != nil {
			a.whole = err == io.EOF && !upgraded
			break
		}
	}
	if strings.EqualFold(a.header.Get("Content-Encoding"), "gzip") {
		if z, err := gzip.NewReader(bytes.NewReader(a.body)); err == nil {
			plain, _ := io.ReadAll(io.LimitReader(z, 8*maxAnswer)) // as far as it goes
			a.body = plain
		}
	}
	return a
}

// text returns the whole answer, to search for canaries.
func (a *answer) text() string {
	var b strings.Builder
	_ = a.header.Write(&b)
	b.Write(a.body)
	return b.String()
}
