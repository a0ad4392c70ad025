package access

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/asn1"
	"k8s.io/client-go/rest"
	certutil "k8s.io/client-go/util/cert"
)

// authoritiesTTL is how long authorities are used before they are read again.
const authoritiesTTL = time.Minute

// authorities are the certificate authorities whose client certificates are accepted.
type authorities struct {
	cache *cache[*pool]
	read  func(context.Context) ([]byte, error)
}

// pool is a parsed bundle of authorities. A nil pool accepts no certificate.
type pool struct {
	id    digest // of the PEM
	certs *x509.CertPool
}

// clusterAuthorities reads the authorities that the API server itself accepts and
// publishes for extension API servers.
func clusterAuthorities(core rest.Interface, options Options) *authorities {
	return newAuthorities(options, func(ctx context.Context) ([]byte, error) {
		const namespace, name, key = "kube-system", "extension-apiserver-authentication", "client-ca-file"
		var cm corev1.ConfigMap
		err := core.Get().Namespace(namespace).Resource("configmaps").Name(name).MaxRetries(0).Do(ctx).Into(&cm)
		if apierrors.IsNotFound(err) {
			return nil, nil // the API server accepts no certificates
		}
		return []byte(cm.Data[key]), err
	})
}

func fileAuthorities(path string) *authorities {
	return newAuthorities(Options{}.withDefaults(), func(context.Context) ([]byte, error) {
		body, err := os.ReadFile(path)
		if err == nil && len(body) == 0 {
			err = errors.New("the file is empty")
		}
		if err != nil {
			return nil, fmt.Errorf("read client certificate authorities from %s: %w", path, err)
		}
		return body, nil
	})
}

func newAuthorities(options Options, read func(context.Context) ([]byte, error)) *authorities {
	options.MaxEntries = 1
	seats := newSeatPool(1)
	return &authorities{
		cache: newCache(options, func(p *pool) bool { return p != nil }, func(*pool) string { return "" }, seats, seats),
		read:  read,
	}
}

func (a *authorities) get(ctx context.Context) (*pool, error) {
	got, err := a.cache.get(ctx, digest{}, "", func(ctx context.Context) (*pool, time.Duration, error) {
		body, err := a.read(ctx)
		if err != nil {
			return nil, 0, err
		}
		if body = bytes.TrimSpace(body); len(body) == 0 {
			return nil, authoritiesTTL, nil
		}
		certs, err := certutil.ParseCertsPEM(body)
		if err != nil {
			return nil, 0, fmt.Errorf("parse client certificate authorities: %w", err)
		}
		out := &pool{id: digestOf(string(body)), certs: x509.NewCertPool()}
		for _, c := range certs {
			out.certs.AddCert(c)
		}
		return out, authoritiesTTL, nil
	})
	return got.value, err
}

// byCertificate authenticates by certificate. It returns nil and no error if the
// certificate proves nothing, such as one of another authority.
func (r *Reviewer) byCertificate(ctx context.Context, credentials Credentials) (*Caller, time.Time, error) {
	const what = "a request for the authorities of client certificates"
	if len(credentials.certificates) == 0 {
		return nil, time.Time{}, nil
	}
	roots, err := r.authorities.get(ctx)
	if err != nil {
		r.warnUnavailable(what, err)
		return nil, time.Time{}, r.unavailable(ctx, what, err)
	}
	if roots == nil {
		return nil, time.Time{}, nil
	}
	got, err := r.certificates.get(ctx, credentials.verificationKey(roots), "", func(context.Context) (*Caller, time.Duration, error) {
		leaf := credentials.certificates[0]
		if !verifyChain(credentials.certificates, roots) {
			return nil, r.options.DenyTTL, nil
		}
		info, ok := userFromCertificate(leaf)
		if !ok {
			return nil, r.options.DenyTTL, nil
		}
		return r.newCaller(info), min(r.options.AllowTTL, time.Until(leaf.NotAfter)), nil
	})
	if err != nil {
		return nil, time.Time{}, r.unavailable(ctx, what, err)
	}
	if got.value == nil {
		return nil, time.Time{}, nil
	}
	return got.value.withCredentials(credentials, false), got.until, nil
}

// verificationKey identifies the verification of the certificates against a pool.
func (c Credentials) verificationKey(roots *pool) digest {
	return digestOf(string(roots.id[:]), string(c.certificatesID[:]))
}

func digestOfChain(chain []*x509.Certificate) digest {
	parts := make([]string, len(chain))
	for i, cert := range chain {
		parts[i] = string(cert.Raw)
	}
	return digestOf(parts...)
}

func (r *Reviewer) certificateStatus(credentials Credentials) credentialStatus {
	if roots := r.authorities.cache.lastPositive(digest{}); roots != nil {
		return r.certificates.status(credentials.verificationKey(roots))
	}
	return r.authorities.cache.status(digest{})
}

// verifyChain reports whether the first certificate is valid now and signed by one of
// the roots, with the others as intermediates.
func verifyChain(certificates []*x509.Certificate, roots *pool) bool {
	options := x509.VerifyOptions{Roots: roots.certs, Intermediates: x509.NewCertPool(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	for _, c := range certificates[1:] {
		options.Intermediates.AddCert(c)
	}
	_, err := certificates[0].Verify(options)
	return err == nil
}

// userFromCertificate reads the user as the API server does; see
// CommonNameUserConversion in k8s.io/apiserver/pkg/authentication/request/x509.
func userFromCertificate(c *x509.Certificate) (authenticationv1.UserInfo, bool) {
	sum := sha256.Sum256(c.Raw)
	info := authenticationv1.UserInfo{
		Username: c.Subject.CommonName,
		Groups:   withGroups(c.Subject.Organization),
		Extra:    map[string]authenticationv1.ExtraValue{"authentication.kubernetes.io/credential-id": {"X509SHA256=" + hex.EncodeToString(sum[:])}},
	}
	for _, name := range c.Subject.Names {
		if !name.Type.Equal(asn1.X509UID()) {
			continue
		}
		uid, ok := name.Value.(string)
		if !ok || uid == "" || info.UID != "" {
			return info, false
		}
		info.UID = uid
	}
	return info, info.Username != ""
}
