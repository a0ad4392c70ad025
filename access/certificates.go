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

// believedCA is how long authorities are believed before they are read again.
const believedCA = time.Minute

// authorities are those whose client certificates are accepted, as they are at
// the moment.
type authorities struct {
	cache *cache[*pool]
	read  func(context.Context) ([]byte, error)
}

// pool is what a bundle of authorities says. A nil one accepts nobody.
type pool struct {
	pem   []byte
	certs *x509.CertPool
}

// authoritiesOfCluster are the ones that the API server accepts itself, which
// it publishes for the likes of us.
func authoritiesOfCluster(core rest.Interface, options Options) *authorities {
	return newAuthorities(options, func(ctx context.Context) ([]byte, error) {
		const namespace, name, key = "kube-system", "extension-apiserver-authentication", "client-ca-file"
		var cm corev1.ConfigMap
		err := core.Get().Namespace(namespace).Resource("configmaps").Name(name).MaxRetries(0).Do(ctx).Into(&cm)
		if apierrors.IsNotFound(err) {
			return nil, nil // it accepts no certificates
		}
		return []byte(cm.Data[key]), err
	})
}

func authoritiesOfFile(path string) *authorities {
	return newAuthorities(Options{}.withDefaults(), func(context.Context) ([]byte, error) {
		body, err := os.ReadFile(path)
		if err == nil && len(body) == 0 {
			err = errors.New("it is empty")
		}
		if err != nil {
			return nil, fmt.Errorf("read the authorities of client certificates from %s: %w", path, err)
		}
		return body, nil
	})
}

func newAuthorities(options Options, read func(context.Context) ([]byte, error)) *authorities {
	options.MaxEntries = 1
	place := newPlaces(1)
	return &authorities{
		cache: newCache(options, func(p *pool) bool { return p != nil }, func(*pool) string { return "" }, place, place),
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
			return nil, believedCA, nil
		}
		certs, err := certutil.ParseCertsPEM(body)
		if err != nil {
			return nil, 0, fmt.Errorf("authorities of client certificates: %w", err)
		}
		out := &pool{pem: body, certs: x509.NewCertPool()}
		for _, c := range certs {
			out.certs.AddCert(c)
		}
		return out, believedCA, nil
	})
	return got.value, err
}

// byCertificate finds out who shows a certificate. nil and no error mean that
// it says nothing, as one of another authority does.
func (r *Reviewer) byCertificate(ctx context.Context, credentials Credentials) (*Caller, time.Time, error) {
	const asking = "the authorities of client certificates"
	if len(credentials.certificates) == 0 {
		return nil, time.Time{}, nil
	}
	roots, err := r.authorities.get(ctx)
	if err != nil {
		r.trouble(asking, err)
		return nil, time.Time{}, r.unanswered(ctx, asking, err)
	}
	if roots == nil {
		return nil, time.Time{}, nil
	}
	got, err := r.certificates.get(ctx, credentials.signedBy(roots), "", func(context.Context) (*Caller, time.Duration, error) {
		own := credentials.certificates[0]
		if !verified(credentials.certificates, roots) {
			return nil, r.options.Deny, nil
		}
		info, ok := userOf(own)
		if !ok {
			return nil, r.options.Deny, nil
		}
		return r.newCaller(info), min(r.options.Allow, time.Until(own.NotAfter)), nil
	})
	if err != nil {
		return nil, time.Time{}, r.unanswered(ctx, asking, err)
	}
	if got.value == nil {
		return nil, time.Time{}, nil
	}
	return got.value.with(credentials, false), got.until, nil
}

// signedBy is what the answer is found by to whose certificates they are.
func (c Credentials) signedBy(by *pool) digest {
	parts := make([]string, 0, 1+len(c.certificates))
	parts = append(parts, string(by.pem))
	for _, one := range c.certificates {
		parts = append(parts, string(one.Raw))
	}
	return digestOf(parts...)
}

func (r *Reviewer) standingOfCertificate(credentials Credentials) standing {
	if by := r.authorities.cache.lastYes(digest{}); by != nil {
		return r.certificates.standing(credentials.signedBy(by))
	}
	return r.authorities.cache.standing(digest{})
}

// verified says that one of the authorities has signed the first certificate,
// by way of the others if need be, and that it is valid now.
func verified(certificates []*x509.Certificate, by *pool) bool {
	options := x509.VerifyOptions{Roots: by.certs, Intermediates: x509.NewCertPool(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	for _, c := range certificates[1:] {
		options.Intermediates.AddCert(c)
	}
	_, err := certificates[0].Verify(options)
	return err == nil
}

// userOf reads a certificate as the API server does, see CommonNameUserConversion
// in k8s.io/apiserver/pkg/authentication/request/x509.
func userOf(c *x509.Certificate) (authenticationv1.UserInfo, bool) {
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
