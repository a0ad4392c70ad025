//go:build unix

package controlplane

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// A port is a TCP port on 127.0.0.1 that is kept for one cluster. It is bound
// but not listened on, so the kernel gives it to nobody else while connections
// to it are refused; the API server, which is told to share its port, listens
// on it. So the port is free when the API server starts, and still its own
// after a restart.
type port struct {
	fd     int
	number int
}

func reservePort() (*port, error) {
	p, err := bindPort()
	if err != nil {
		return nil, fmt.Errorf("reserve a port: %w", err)
	}
	return p, nil
}

func bindPort() (*port, error) {
	syscall.ForkLock.RLock() // no child is to inherit the socket
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err == nil {
		unix.CloseOnExec(fd)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, err
	}
	p := &port{fd: fd}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1); err != nil {
		p.release()
		return nil, err
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		p.release()
		return nil, err
	}
	addr, err := unix.Getsockname(fd)
	if err != nil {
		p.release()
		return nil, err
	}
	p.number = addr.(*unix.SockaddrInet4).Port
	return p, nil
}

func (p *port) release() { unix.Close(p.fd) }
