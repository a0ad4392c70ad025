//go:build unix

package controlplane

import (
	"fmt"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// A port is a TCP port on 127.0.0.1 reserved for one cluster. It is bound but
// not listened on, so the kernel assigns it to nothing else, and connections to
// it are refused. The program that serves on it sets SO_REUSEPORT. The port is
// therefore free when the program starts, and stays reserved over a restart.
type port struct {
	fd     int
	number int
}

// reservePort reserves a port until the cluster is stopped.
func (c *Cluster) reservePort() (*port, error) {
	p, err := bindPort()
	if err != nil {
		return nil, fmt.Errorf("reserve a port: %w", err)
	}
	c.ports = append(c.ports, p)
	return p, nil
}

func bindPort() (*port, error) {
	syscall.ForkLock.RLock() // no child may inherit the socket
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

// url returns the address that the program serves on.
func (p *port) url() string { return "https://127.0.0.1:" + strconv.Itoa(p.number) }

// servingFlags returns the serving flags that all Kubernetes programs have in
// common.
func (c *Cluster) servingFlags(p *port) []string {
	return []string{
		"--bind-address=127.0.0.1",
		"--secure-port=" + strconv.Itoa(p.number),
		"--permit-port-sharing", // with the socket that reserves the port
		"--tls-cert-file=" + c.path("tls.crt"),
		"--tls-private-key-file=" + c.path("tls.key"),
	}
}
