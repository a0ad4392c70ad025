package fleet_test

import (
	"net"
	"sync"
)

// proxy is a network between a client and a server that can fail.
type proxy struct {
	net.Listener
	to string

	mu    sync.Mutex
	conns map[net.Conn]bool
	hold  [2]chan struct{} // to the server and to the client; nil: bytes pass
	down  bool
	wait  sync.WaitGroup
}

const toServer, toClient = 0, 1

// proxy starts a proxy of the NATS server.
func (r *rig) proxy() *proxy {
	r.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	r.must(err)
	p := &proxy{Listener: l, to: r.nats.Addr().String(), conns: map[net.Conn]bool{}}
	p.wait.Go(p.accept)
	r.Cleanup(func() {
		_ = l.Close()
		p.release()
		p.cut()
		p.wait.Wait()
	})
	return p
}

func (p *proxy) url() string { return "nats://" + p.Addr().String() }

func (p *proxy) accept() {
	for {
		in, err := p.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", p.to)
		p.mu.Lock()
		if err != nil || p.down {
			p.mu.Unlock()
			_ = in.Close()
			if out != nil {
				_ = out.Close()
			}
			continue
		}
		p.conns[in], p.conns[out] = true, true
		p.mu.Unlock()
		p.wait.Go(func() { p.copy(out, in, toServer) })
		p.wait.Go(func() { p.copy(in, out, toClient) })
	}
}

func (p *proxy) copy(to, from net.Conn, way int) {
	defer func() {
		_ = to.Close()
		_ = from.Close()
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.conns, to)
		delete(p.conns, from)
	}()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		p.mu.Lock()
		hold := p.hold[way]
		p.mu.Unlock()
		if hold != nil {
			<-hold
		}
		if _, failed := to.Write(buf[:n]); failed != nil || err != nil {
			return
		}
	}
}

// block holds the bytes of some ways back, until release.
func (p *proxy) block(ways ...int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, way := range ways {
		if p.hold[way] == nil {
			p.hold[way] = make(chan struct{})
		}
	}
}

// release lets the bytes pass.
func (p *proxy) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for way, hold := range p.hold {
		if hold != nil {
			close(hold)
			p.hold[way] = nil
		}
	}
}

// cut breaks the connections.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.Close()
	}
}

// setDown breaks the connections and refuses others, or lets them be made again.
func (p *proxy) setDown(down bool) {
	p.mu.Lock()
	p.down = down
	p.mu.Unlock()
	if down {
		p.cut()
	}
}
