package access_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net/http"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidings-io/tidings/cmd/tidings/internal/access"
)

var configMaps = corev1.SchemeGroupVersion.WithResource("configmaps")

// certificate makes a certificate: of an authority, or signed by one.
func (r *rig) certificate(name string, by *tls.Certificate) *tls.Certificate {
	r.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	r.must(err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: by == nil, BasicConstraintsValid: true, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	parent, signer := template, key
	if by != nil {
		parent, signer = by.Leaf, by.PrivateKey.(*ecdsa.PrivateKey)
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	r.must(err)
	leaf, err := x509.ParseCertificate(raw)
	r.must(err)
	return &tls.Certificate{PrivateKey: key, Leaf: leaf}
}

func certificateCredentials(c *tls.Certificate) access.Credentials {
	return access.CredentialsOf(&http.Request{Header: http.Header{}, TLS: &tls.ConnectionState{PeerCertificates: []*x509.Certificate{c.Leaf}}})
}

// Grace is for authorities as well. Two certificates of one user are one caller.
func TestCertificatesWhileUnavailable(t *testing.T) {
	inBubble(t, access.Options{}, func(r *rig) {
		authority := r.certificate("authority", nil)
		bundle := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: authority.Leaf.Raw})
		_, err := r.cluster.Create(&corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "extension-apiserver-authentication"},
			Data:       map[string]string{"client-ca-file": string(bundle)},
		})
		r.must(err)
		alice, again, unasked := certificateCredentials(r.certificate("alice", authority)), certificateCredentials(r.certificate("alice", authority)), certificateCredentials(r.certificate("bob", authority))
		other := certificateCredentials(r.certificate("alice", r.certificate("authority", nil)))
		if is, err := r.IsUnverified(alice); !is || err != nil {
			t.Errorf("a certificate that was never seen: %v %v", is, err)
		}
		r.grant("alice", pods, true)
		r.must(r.may(alice, pods))
		if is, err := r.IsUnverified(alice); is || err != nil {
			t.Errorf("a certificate that was accepted: %v %v", is, err)
		}
		one, err := r.Authenticate(r.ctx, alice)
		r.must(err)
		two, err := r.Authenticate(r.ctx, again)
		r.must(err)
		if one.Key() != two.Key() {
			t.Error("another certificate makes another caller")
		}
		_ = r.Verify(r.ctx, other)
		if _, err := r.IsUnverified(other); err == nil {
			t.Error("a certificate of another authority is not refused")
		}

		for name, outage := range outages {
			r.must(r.may(alice, pods))
			over := outage(r, accessReviews, configMaps)
			for range 5 {
				time.Sleep(45 * time.Second)
				r.must(r.may(alice, pods))
				if err := r.may(unasked, pods); err == nil {
					t.Errorf("%s: bob may, whom nobody has asked about", name)
				}
				if err := r.may(other, pods); err == nil {
					t.Errorf("%s: a certificate of another authority is accepted", name)
				}
			}
			over()
			time.Sleep(2 * time.Minute)
		}
		r.must(r.may(alice, pods))
	})
}
