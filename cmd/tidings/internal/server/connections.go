package server

import (
	"net"
	"sync"
)

// addressLimiter is a listener that closes new connections from addresses that have too
// many, to leave room for others.
type addressLimiter struct {
	net.Listener
	max int

	mu   sync.Mutex
	open map[string]int // connections by address
}

// Accept implements [net.Listener].
func (f *addressLimiter) Accept() (net.Conn, error) {
	for {
		c, err := f.Listener.Accept()
		if err != nil {
			return nil, err
		}
		host := remoteHost(c.RemoteAddr().String())
		if host == "" {
			return c, nil
		}
		if f.add(host) {
			return &countedConn{Conn: c, closed: sync.OnceFunc(func() { f.remove(host) })}, nil
		}
		_ = c.Close()
	}
}

func (f *addressLimiter) add(host string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.open[host] >= f.max {
		return false
	}
	f.open[host]++
	return true
}

func (f *addressLimiter) remove(host string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.open[host]--; f.open[host] == 0 {
		delete(f.open, host)
	}
}

// countedConn is a connection that counts until it is closed.
type countedConn struct {
	net.Conn
	closed func()
}

// Close implements [net.Conn].
func (c *countedConn) Close() error {
	c.closed()
	return c.Conn.Close()
}

// remoteHost returns the host of an address, or "" for this machine: all its
// connections belong to one user.
func remoteHost(address string) string {
	host, _, err := net.SplitHostPort(address)
	if ip := net.ParseIP(host); err != nil || ip == nil || ip.IsLoopback() {
		return ""
	}
	return host
}
