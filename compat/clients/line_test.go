package clients

import (
	"io"
	"net"
	"sync"
	"testing"
)

// line is what lies between a client and its server. It can be held, so that
// nothing arrives from the server any more while the connections stay open, and
// cut.
type line struct {
	listener net.Listener
	wg       sync.WaitGroup

	mu    sync.Mutex
	gone  bool          // for good
	open  chan struct{} // closed while what comes from the server is let through
	conns map[net.Conn]bool
}

func newLine(t *testing.T, to string) *line {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := &line{listener: l, open: make(chan struct{}), conns: map[net.Conn]bool{}}
	close(n.open)
	n.wg.Go(func() {
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
			n.mu.Lock()
			if n.conns[near], n.conns[far] = true, true; n.gone {
				near.Close()
				far.Close()
			}
			n.mu.Unlock()
			n.wg.Go(func() { n.carry(far, near, false) })
			n.wg.Go(func() { n.carry(near, far, true) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		n.mu.Lock()
		n.gone = true
		n.mu.Unlock()
		n.release()
		n.cut()
		n.wg.Wait()
	})
	return n
}

// carry takes bytes from one end to the other until one is gone.
func (n *line) carry(to, from net.Conn, held bool) {
	defer to.Close()
	defer from.Close()
	part := make([]byte, 32<<10)
	for {
		got, err := from.Read(part)
		if held {
			n.mu.Lock()
			open := n.open
			n.mu.Unlock()
			<-open
		}
		if _, failed := to.Write(part[:got]); failed != nil || err == io.EOF || err != nil {
			return
		}
	}
}

// url is where clients connect to.
func (n *line) url() string { return "https://" + n.listener.Addr().String() }

// hold has nothing arrive from the server until release.
func (n *line) hold() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.open = make(chan struct{})
}

func (n *line) release() {
	n.mu.Lock()
	defer n.mu.Unlock()
	select {
	case <-n.open:
	default:
		close(n.open)
	}
}

// cut ends all connections; what is under way in them is lost.
func (n *line) cut() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for c := range n.conns {
		c.Close()
		delete(n.conns, c)
	}
}
