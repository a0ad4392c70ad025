package server

import (
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// statInterval is the shortest time between two checks of the certificate's files.
const statInterval = time.Second

// LoadTLS serves with a certificate and its key from PEM files. It reads them again
// when they change; if that fails, it logs the error and keeps the previous
// certificate.
func LoadTLS(certFile, keyFile string, log *slog.Logger) (*tls.Config, error) {
	p := &keyPair{certFile: certFile, keyFile: keyFile, log: log}
	if err := p.load(); err != nil {
		return nil, err
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: p.get}, nil
}

// keyPair is a certificate and its key on disk.
type keyPair struct {
	certFile, keyFile string
	log               *slog.Logger

	mu        sync.Mutex
	cert      *tls.Certificate
	loaded    [2]fileStamp
	checkedAt time.Time
}

// fileStamp identifies a version of a file. It also changes when a symbolic link in its
// path is moved, as in a mounted Secret.
type fileStamp struct {
	changed time.Time
	size    int64
}

func stampOf(path string) fileStamp {
	info, err := os.Stat(path)
	if err != nil {
		return fileStamp{}
	}
	return fileStamp{info.ModTime(), info.Size()}
}

func (p *keyPair) stamps() [2]fileStamp { return [2]fileStamp{stampOf(p.certFile), stampOf(p.keyFile)} }

func (p *keyPair) load() error {
	current := p.stamps()
	cert, err := tls.LoadX509KeyPair(p.certFile, p.keyFile)
	if err != nil {
		return fmt.Errorf("server: TLS with the certificate %s and the key %s: %w", p.certFile, p.keyFile, err)
	}
	p.cert, p.loaded = &cert, current
	return nil
}

func (p *keyPair) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Since(p.checkedAt) >= statInterval {
		p.checkedAt = time.Now()
		if p.stamps() != p.loaded {
			if err := p.load(); err != nil {
				p.log.Warn("the serving certificate has changed and cannot be loaded; the previous one stays in use", "err", err)
			} else {
				p.log.Info("loaded a new serving certificate", "file", p.certFile)
			}
		}
	}
	return p.cert, nil
}

// Fingerprint returns the SHA-256 of a PEM certificate in the format of openssl.
func Fingerprint(certificate []byte) string {
	block, _ := pem.Decode(certificate)
	if block == nil {
		return ""
	}
	sum := sha256.Sum256(block.Bytes)
	var parts []string
	for pair := range slices.Chunk([]byte(strings.ToUpper(hex.EncodeToString(sum[:]))), 2) {
		parts = append(parts, string(pair))
	}
	return strings.Join(parts, ":")
}

// HostsOf returns the names and addresses of a server that listens on addr: all of this
// machine's, if it listens on all.
func HostsOf(addr net.Addr) []string {
	hosts := []string{"localhost", "127.0.0.1", "::1"}
	tcp, ok := addr.(*net.TCPAddr)
	if !ok {
		return hosts
	}
	if name, err := os.Hostname(); err == nil {
		hosts = append(hosts, name)
	}
	if !tcp.IP.IsUnspecified() {
		return append(hosts, tcp.IP.String())
	}
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return hosts // clients have to use one of these
	}
	for _, a := range addresses {
		if n, ok := a.(*net.IPNet); ok && !n.IP.IsLinkLocalUnicast() {
			hosts = append(hosts, n.IP.String())
		}
	}
	return hosts
}
