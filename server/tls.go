package server

import (
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	certutil "k8s.io/client-go/util/cert"
)

// lookAgain is how often the files of a certificate are looked at at most.
const lookAgain = time.Second

// LoadTLS serves with a certificate and its key, in PEM files. They are read
// again when they change; what cannot be read then is logged, and the one before
// stays in use.
func LoadTLS(certFile, keyFile string, log *slog.Logger) (*tls.Config, error) {
	p := &pair{certFile: certFile, keyFile: keyFile, log: log}
	if err := p.load(); err != nil {
		return nil, err
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: p.get}, nil
}

// pair is a certificate and its key on disk.
type pair struct {
	certFile, keyFile string
	log               *slog.Logger

	mu     sync.Mutex
	cert   *tls.Certificate
	of     [2]stamp
	looked time.Time
}

// stamp tells one content of a file from another. Mounted secrets change by a
// link being moved, which both of these show.
type stamp struct {
	changed time.Time
	size    int64
}

func stampOf(path string) stamp {
	info, err := os.Stat(path)
	if err != nil {
		return stamp{}
	}
	return stamp{info.ModTime(), info.Size()}
}

func (p *pair) stamps() [2]stamp { return [2]stamp{stampOf(p.certFile), stampOf(p.keyFile)} }

func (p *pair) load() error {
	of := p.stamps()
	cert, err := tls.LoadX509KeyPair(p.certFile, p.keyFile)
	if err != nil {
		return fmt.Errorf("server: TLS with the certificate %s and the key %s: %w", p.certFile, p.keyFile, err)
	}
	p.cert, p.of = &cert, of
	return nil
}

func (p *pair) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Since(p.looked) >= lookAgain {
		p.looked = time.Now()
		if p.stamps() != p.of {
			if err := p.load(); err != nil {
				p.log.Warn("the certificate to serve with has changed and cannot be read; the one before stays in use", "err", err)
			} else {
				p.log.Info("serving with a new certificate", "file", p.certFile)
			}
		}
	}
	return p.cert, nil
}

// GenerateTLS serves with a certificate made for the occasion, for the hosts
// that clients may know the server by. It returns the authority that signed it,
// in PEM, for clients to trust. Both last a year, or as long as the process.
func GenerateTLS(hosts []string) (config *tls.Config, authority []byte, err error) {
	fail := func(err error) (*tls.Config, []byte, error) {
		return nil, nil, fmt.Errorf("server: make a certificate: %w", err)
	}
	var ips []net.IP
	var names []string
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			ips = append(ips, ip)
		} else if h != "" {
			names = append(names, h)
		}
	}
	chain, key, err := certutil.GenerateSelfSignedCertKey("tidings", ips, names)
	if err != nil {
		return fail(err)
	}
	cert, err := tls.X509KeyPair(chain, key)
	if err != nil {
		return fail(err)
	}
	if len(cert.Certificate) < 2 {
		return fail(errors.New("it has no authority"))
	}
	authority = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Certificate[len(cert.Certificate)-1]})
	return &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{cert}}, authority, nil
}

// Fingerprint is the SHA-256 of a certificate in PEM, as openssl prints it.
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

// HostsOf are the names and addresses by which clients may know a server that
// listens on an address: all of this machine's, if it listens on all.
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
		return hosts // and clients have to use one of these
	}
	for _, a := range addresses {
		if n, ok := a.(*net.IPNet); ok && !n.IP.IsLinkLocalUnicast() {
			hosts = append(hosts, n.IP.String())
		}
	}
	return hosts
}
