package server

import (
	"net"
	"sync"
)

// fair is a listener that closes connections at once of addresses that have
// enough of them, so that there is room for the others.
type fair struct {
	net.Listener
	most int

	mu   sync.Mutex
	open map[string]int // by address, of those that have any
}

// Accept implements [net.Listener].
func (f *fair) Accept() (net.Conn, error) {
	for {
		c, err := f.Listener.Accept()
		if err != nil {
			return nil, err
		}
		from := foreign(c.RemoteAddr().String())
		if from == "" {
			return c, nil
		}
		if f.enter(from) {
			return &counted{Conn: c, closed: sync.OnceFunc(func() { f.leave(from) })}, nil
		}
		_ = c.Close()
	}
}

func (f *fair) enter(from string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.open[from] >= f.most {
		return false
	}
	f.open[from]++
	return true
}

func (f *fair) leave(from string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.open[from]--; f.open[from] == 0 {
		delete(f.open, from)
	}
}

// counted is a connection that counts until it is closed.
type counted struct {
	net.Conn
	closed func()
}

// Close implements [net.Conn].
func (c *counted) Close() error {
	c.closed()
	return c.Conn.Close()
}

// foreign is the host of an address, or "" if that is this machine: it is one
// user's then.
func foreign(address string) string {
	host, _, err := net.SplitHostPort(address)
	if ip := net.ParseIP(host); err != nil || ip == nil || ip.IsLoopback() {
		return ""
	}
	return host
}
