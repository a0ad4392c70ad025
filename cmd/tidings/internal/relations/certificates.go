package relations

import (
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"time"

	"github.com/tidwall/gjson"
)

// expiredSecret finds that the certificate of a TLS Secret has expired. Nothing else of
// the Secret's data is read, and the key never.
func expiredSecret(o Object, now time.Time, found func(string, string, ...any)) {
	if o.str("type") != "kubernetes.io/tls" {
		return
	}
	const field = `data["tls.crt"]`
	text, err := base64.StdEncoding.DecodeString(o.get("data").Get(gjson.Escape("tls.crt")).Str)
	if err != nil {
		return
	}
	block, _ := pem.Decode(text) // the first is that of the server
	if block == nil || block.Type != "CERTIFICATE" {
		return
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err == nil && now.After(certificate.NotAfter) {
		expired(certificate.NotAfter, field, found)
	}
}

// expiredCertificate finds that a Certificate of cert-manager has expired.
func expiredCertificate(o Object, now time.Time, found func(string, string, ...any)) {
	if until, err := time.Parse(time.RFC3339, o.str("status.notAfter")); err == nil && now.After(until) {
		expired(until, "status.notAfter", found)
	}
}

func expired(until time.Time, field string, found func(string, string, ...any)) {
	found(field, "the certificate expired at %s", until.UTC().Format(time.RFC3339))
}
