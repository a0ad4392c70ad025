package clients

import (
	"io"
	"net"
	"sync"
	"testing"
)

// proxy forwards connections from clients to a server. It can be paused, so
// that no data arrives from the server while the connections stay open, and
// cut.
type proxy struct {
	listener net.Listener
	wg       sync.WaitGroup

	mu    sync.Mutex
	gone  bool          // closed for good
	open  chan struct{} // closed while data from the server passes
	conns map[net.Conn]bool
}

func newProxy(t *testing.T, to string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: l, open: make(chan struct{}), conns: map[net.Conn]bool{}}
	close(p.open)
	p.wg.Go(func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", to)
			if err != nil {
				near.Close()
				continue
			}
			p.mu.Lock()
			if p.conns[near], p.conns[far] = true, true; p.gone {
				near.Close()
				far.Close()
			}
			p.mu.Unlock()
			p.wg.Go(func() { p.carry(far, near, false) })
			p.wg.Go(func() { p.carry(near, far, true) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		p.mu.Lock()
		p.gone = true
		p.mu.Unlock()
		p.unpause()
		p.cut()
		p.wg.Wait()
	})
	return p
}

// carry copies bytes from one connection to the other until one is closed.
func (p *proxy) carry(to, from net.Conn, paused bool) {
	defer to.Close()
	defer from.Close()
	part := make([]byte, 32<<10)
	for {
		got, err := from.Read(part)
		if paused {
			p.mu.Lock()
			open := p.open
			p.mu.Unlock()
			<-open
		}
		if _, failed := to.Write(part[:got]); failed != nil || err == io.EOF || err != nil {
			return
		}
	}
}

// url returns the address for clients.
func (p *proxy) url() string { return "https://" + p.listener.Addr().String() }

// pause holds back all data from the server until unpause.
func (p *proxy) pause() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open = make(chan struct{})
}

func (p *proxy) unpause() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.open:
	default:
		close(p.open)
	}
}

// cut closes all connections and drops the data in them.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.Close()
		delete(p.conns, c)
	}
}
