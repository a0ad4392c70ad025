package server_test

import (
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"

	"github.com/tidings-io/tidings/cmd/tidings/internal/server"
)

var quiet = slog.New(slog.DiscardHandler)

func openAuthority(t *testing.T, dir string) *server.Authority {
	t.Helper()
	a, err := server.OpenAuthority(dir, quiet)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// trusts reports whether a client that trusts an authority accepts what a server shows
// it now.
func trusts(t *testing.T, authority []byte, config *tls.Config, host string) error {
	t.Helper()
	shown, err := config.GetCertificate(&tls.ClientHelloInfo{})
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(authority) {
		t.Fatalf("no certificate: %q", authority)
	}
	_, err = shown.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: host, CurrentTime: time.Now()})
	return err
}

func serving(t *testing.T, a *server.Authority, hosts ...string) *tls.Config {
	t.Helper()
	config, err := a.TLS(hosts)
	if err != nil {
		t.Fatal(err)
	}
	return config
}

// Clients that trust a kept authority trust it after each restart, and nobody else may
// read its key.
func TestAuthorityIsKept(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "tls")
	first := openAuthority(t, dir)
	second := openAuthority(t, dir)
	config := serving(t, second, "mirror.example.com", "192.0.2.1", "")
	for _, host := range []string{"mirror.example.com", "192.0.2.1"} {
		if err := trusts(t, first.PEM(), config, host); err != nil {
			t.Errorf("%s: %v", host, err)
		}
	}
	if err := trusts(t, first.PEM(), config, "other.example.com"); err == nil {
		t.Error("it is valid for another host")
	}
	other, err := server.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	if err := trusts(t, first.PEM(), serving(t, other, "mirror.example.com"), "mirror.example.com"); err == nil {
		t.Error("it trusts another authority")
	}
	for name, mode := range map[string]os.FileMode{".": 0o700, "ca.key": 0o600, "ca.crt": 0o600} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v %v", name, info.Mode(), err)
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 2 {
		t.Errorf("%v %v", entries, err)
	}
}

// Servers that start at once on an empty folder share one authority.
func TestServersShareAnAuthority(t *testing.T) {
	dir := t.TempDir()
	authorities := make([]*server.Authority, 8)
	var group sync.WaitGroup
	for i := range authorities {
		group.Go(func() { authorities[i], _ = server.OpenAuthority(dir, quiet) })
	}
	group.Wait()
	for i, a := range authorities {
		if a == nil {
			t.Fatalf("server %d does not start", i)
		}
		if err := trusts(t, authorities[0].PEM(), serving(t, a, "x"), "x"); err != nil {
			t.Errorf("server %d: %v", i, err)
		}
	}
}

// The serving certificate is renewed while the server runs, and the authority's before
// it expires: a client that trusts the previous one trusts what comes after.
func TestCertificatesAreRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const day = 24 * time.Hour
		dir := t.TempDir()
		a := openAuthority(t, dir)
		trusted := a.PEM()
		config := serving(t, a, "mirror")
		for range 9 * 12 { // years, in months
			time.Sleep(30 * day)
			if err := trusts(t, trusted, config, "mirror"); err != nil {
				t.Fatal(err)
			}
			now, _ := config.GetCertificate(nil)
			if left := time.Until(now.Leaf.NotAfter); left < 25*day {
				t.Fatalf("the certificate is valid for %s more", left)
			}
		}
		if string(a.PEM()) == string(trusted) {
			t.Error("the authority is not renewed")
		}
		again := openAuthority(t, dir)
		if string(again.PEM()) != string(a.PEM()) {
			t.Error("the renewed authority is not kept")
		}
		if err := trusts(t, trusted, serving(t, again, "mirror"), "mirror"); err != nil {
			t.Errorf("after a restart: %v", err)
		}
		time.Sleep(2 * 365 * day) // the first one has expired
		if err := trusts(t, trusted, config, "mirror"); err == nil {
			t.Error("it is trusted after it has expired")
		}
		if err := trusts(t, a.PEM(), config, "mirror"); err != nil {
			t.Error(err)
		}
		// Not started for so long that it has expired, too.
		time.Sleep(20 * 365 * day)
		late := openAuthority(t, dir)
		if err := trusts(t, late.PEM(), serving(t, late, "mirror"), "mirror"); err != nil {
			t.Error(err)
		}
	})
}

// A folder that is damaged or not the server's own is refused with what to do, and
// stays as it is.
func TestFoldersThatAreRefused(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("has no such modes")
	}
	foreignKey, err := keyutil.MakeEllipticPrivateKeyPEM()
	if err != nil {
		t.Fatal(err)
	}
	foreign := func(t *testing.T, dir string) { // such as /etc/kubernetes/pki
		parsed, err := keyutil.ParsePrivateKeyPEM(foreignKey)
		if err != nil {
			t.Fatal(err)
		}
		c, err := cert.NewSelfSignedCACert(cert.Config{CommonName: "kubernetes"}, parsed.(crypto.Signer))
		if err != nil {
			t.Fatal(err)
		}
		put(t, dir, "ca.key", string(foreignKey))
		put(t, dir, "ca.crt", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})))
	}
	made := func(t *testing.T, dir string) { openAuthority(t, dir) }
	for name, c := range map[string]struct {
		prepare func(t *testing.T, dir string)
		says    []string
	}{
		"other files": {func(t *testing.T, dir string) { put(t, dir, "notes.txt", "x") }, []string{"notes.txt", "name a new or an empty folder"}},
		"a key and others": {func(t *testing.T, dir string) {
			put(t, dir, "ca.key", string(foreignKey))
			put(t, dir, "apiserver.crt", "x")
		}, []string{"apiserver.crt"}},
		"another authority":   {foreign, []string{"ca.crt", "kubernetes", "not of an authority that tidings has made"}},
		"a damaged key":       {func(t *testing.T, dir string) { made(t, dir); put(t, dir, "ca.key", "x") }, []string{"ca.key cannot be used", "restore it"}},
		"an empty key":        {func(t *testing.T, dir string) { put(t, dir, "ca.key", "") }, []string{"ca.key cannot be used"}},
		"a damaged cert":      {func(t *testing.T, dir string) { made(t, dir); put(t, dir, "ca.crt", "x") }, []string{"ca.crt cannot be used", "restore it"}},
		"another key":         {func(t *testing.T, dir string) { made(t, dir); put(t, dir, "ca.key", string(foreignKey)) }, []string{"does not belong to the key"}},
		"no key":              {func(t *testing.T, dir string) { made(t, dir); os.Remove(filepath.Join(dir, "ca.key")) }, []string{"ca.key is missing", "new kubeconfig"}},
		"a key for others":    {func(t *testing.T, dir string) { made(t, dir); os.Chmod(filepath.Join(dir, "ca.key"), 0o644) }, []string{"ca.key may be read by others", "chmod"}},
		"a folder for others": {func(t *testing.T, dir string) { os.Chmod(dir, 0o777) }, []string{"may be written by others", "chmod"}},
		"a link": {func(t *testing.T, dir string) {
			os.Symlink("/etc/hostname", filepath.Join(dir, "ca.key"))
		}, []string{"ca.key is not a regular file"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.Chmod(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			c.prepare(t, dir)
			before := contents(t, dir)
			_, err := server.OpenAuthority(dir, quiet)
			if err == nil {
				t.Fatal("it is accepted")
			}
			for _, says := range append(c.says, dir) {
				if !strings.Contains(err.Error(), says) {
					t.Errorf("%v lacks %q", err, says)
				}
			}
			if after := contents(t, dir); after != before {
				t.Errorf("it was\n%s\nand is\n%s", before, after)
			}
		})
	}
}

// Without its certificate an authority is whole again: the key has all that it takes.
func TestAuthorityWithoutItsCertificate(t *testing.T) {
	dir := t.TempDir()
	first := openAuthority(t, dir)
	if err := os.Remove(filepath.Join(dir, "ca.crt")); err != nil {
		t.Fatal(err)
	}
	if err := trusts(t, first.PEM(), serving(t, openAuthority(t, dir), "mirror"), "mirror"); err != nil {
		t.Error(err)
	}
}

func put(t *testing.T, dir, name, content string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func contents(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, e := range entries {
		content, _ := os.ReadFile(filepath.Join(dir, e.Name()))
		b.WriteString(e.Name() + "\n" + string(content) + "\n")
	}
	return b.String()
}
