package server

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"sync"
	"time"
)

const (
	authorityLifetime = 10 * 365 * 24 * time.Hour
	servingLifetime   = 90 * 24 * time.Hour
	// clockSkew is how far the clock of a client may be behind.
	clockSkew = time.Hour
	// authorityName is in the subject of each authority that is made here. The subject
	// never changes, so that a renewed certificate replaces the one that clients trust.
	authorityName = "tidings"
)

// Authority is a self-made certificate authority. It signs the certificates that a
// server serves with, which are in memory only.
type Authority struct {
	dir string // "": it is not kept
	log *slog.Logger

	mu   sync.Mutex
	key  crypto.Signer
	cert *x509.Certificate
}

// NewAuthority makes an authority that is not kept: clients that trust it do not trust
// the one of the next start.
func NewAuthority() (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("server: make a certificate authority: %w", err)
	}
	a := &Authority{log: slog.New(slog.DiscardHandler), key: key}
	return a, a.renew()
}

// PEM returns the certificate of the authority, for clients to trust.
func (a *Authority) PEM() []byte {
	a.mu.Lock()
	defer a.mu.Unlock()
	return encodeCertificate(a.cert.Raw)
}

func encodeCertificate(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// renewAt is when a certificate is renewed: after two thirds of its life.
func renewAt(c *x509.Certificate) time.Time {
	return c.NotAfter.Add(-c.NotAfter.Sub(c.NotBefore) / 3)
}

// renew makes a new certificate of the authority, with the same key and subject.
// Clients that trust the previous one can verify what the new one signs.
func (a *Authority) renew() error {
	template, err := certificateTemplate(authorityLifetime)
	if err != nil {
		return err
	}
	template.Subject = pkix.Name{Organization: []string{authorityName}, CommonName: authorityName + " certificate authority"}
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	template.IsCA, template.MaxPathLenZero = true, true
	if a.cert != nil { // another version of Go may derive another one
		template.SubjectKeyId = a.cert.SubjectKeyId
	}
	a.cert, err = sign(template, template, a.key.Public(), a.key)
	return err
}

// serving returns a certificate for hosts, with its key and the authority's.
func (a *Authority) serving(hosts []string) (*tls.Certificate, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !time.Now().Before(renewAt(a.cert)) {
		if err := a.renewAndKeep(); err != nil {
			a.log.Warn("the certificate authority cannot be renewed; the previous certificate stays in use", "until", a.cert.NotAfter, "err", err)
		} else {
			a.log.Info("renewed the certificate of the certificate authority: give clients a new kubeconfig before the previous one expires")
		}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template, err := certificateTemplate(servingLifetime)
	if err != nil {
		return nil, err
	}
	template.Subject = pkix.Name{CommonName: authorityName}
	template.KeyUsage, template.ExtKeyUsage = x509.KeyUsageDigitalSignature, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else if h != "" {
			template.DNSNames = append(template.DNSNames, h)
		}
	}
	leaf, err := sign(template, a.cert, key.Public(), a.key)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{leaf.Raw, a.cert.Raw}, PrivateKey: key, Leaf: leaf}, nil
}

func certificateTemplate(lifetime time.Duration) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	now := time.Now()
	return &x509.Certificate{SerialNumber: serial, NotBefore: now.Add(-clockSkew), NotAfter: now.Add(lifetime), BasicConstraintsValid: true}, nil
}

func sign(template, parent *x509.Certificate, public crypto.PublicKey, key crypto.Signer) (*x509.Certificate, error) {
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, key)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

// TLS serves with a certificate for the given hosts, signed by the authority. It is
// valid for 90 days and renewed in time.
func (a *Authority) TLS(hosts []string) (*tls.Config, error) {
	cert, err := a.serving(hosts)
	if err != nil {
		return nil, fmt.Errorf("server: make a certificate: %w", err)
	}
	var mu sync.Mutex
	get := func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		mu.Lock()
		defer mu.Unlock()
		if time.Now().Before(renewAt(cert.Leaf)) {
			return cert, nil
		}
		next, err := a.serving(hosts)
		if err != nil {
			a.log.Warn("the serving certificate cannot be renewed; the previous one stays in use", "until", cert.Leaf.NotAfter, "err", err)
			return cert, nil
		}
		cert = next
		return cert, nil
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: get}, nil
}

// GenerateTLS serves with a certificate for the given hosts by an authority that is not
// kept. It returns the authority's certificate in PEM, for clients to trust.
func GenerateTLS(hosts []string) (config *tls.Config, authority []byte, err error) {
	a, err := NewAuthority()
	if err != nil {
		return nil, nil, err
	}
	config, err = a.TLS(hosts)
	return config, a.PEM(), err
}

// checkAuthority returns an error if a certificate is not that of an authority made here with
// this key.
func checkAuthority(cert *x509.Certificate, key crypto.Signer) error {
	public, ok := key.Public().(interface{ Equal(crypto.PublicKey) bool })
	switch {
	case !cert.IsCA || len(cert.Subject.Organization) != 1 || cert.Subject.Organization[0] != authorityName:
		return errors.New("it is the certificate of " + cert.Subject.String() + ", not of an authority that tidings has made")
	case !ok || !public.Equal(cert.PublicKey):
		return errors.New("it does not belong to the key")
	}
	return nil
}
