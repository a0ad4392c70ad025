package server

import (
	"cmp"
	"crypto"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// The files of an authority in its folder. The folder has no others.
const (
	authorityCertFile = "ca.crt"
	authorityKeyFile  = "ca.key"
)

// OpenAuthority returns the authority that is kept in a folder, and makes both if there
// is none. So clients that trust it once trust it after each restart. It refuses a
// folder that others may write to or that has other content, a key that others may
// read, and files that are damaged. Several servers may use a folder.
func OpenAuthority(dir string, log *slog.Logger) (*Authority, error) {
	a := &Authority{dir: dir, log: log}
	if err := a.open(); err != nil {
		return nil, fmt.Errorf("server: the certificate authority in %s: %w", dir, err)
	}
	return a, nil
}

func (a *Authority) path(name string) string { return filepath.Join(a.dir, name) }

func (a *Authority) open() error {
	if err := os.MkdirAll(a.dir, 0o700); err != nil {
		return err
	}
	info, err := os.Stat(a.dir)
	if err != nil {
		return err
	}
	if err := onlyForOwner(info, 0o022, "be written"); err != nil {
		return err
	}
	haveKey, err := a.has(authorityKeyFile)
	if err != nil {
		return err
	}
	haveCert, err := a.has(authorityCertFile)
	if err != nil {
		return err
	}
	if haveCert && !haveKey {
		return fmt.Errorf("%s is missing, and %s is there: restore the key; or remove %s, to have a new authority made, and give clients a new kubeconfig", authorityKeyFile, authorityCertFile, authorityCertFile)
	}
	if !haveCert {
		if err := a.mustHaveNoOthers(); err != nil {
			return err
		}
	}
	if !haveKey {
		if err := a.makeKey(); err != nil {
			return err
		}
	}
	if a.key, err = readKey(a.path(authorityKeyFile)); err != nil {
		return err
	}
	if haveCert {
		if a.cert, err = readCertificate(a.path(authorityCertFile), a.key); err != nil {
			return err
		}
	}
	if a.cert != nil && time.Now().Before(renewAt(a.cert)) {
		return nil
	}
	if a.cert != nil {
		a.log.Info("renewing the certificate of the certificate authority: give clients a new kubeconfig before the previous one expires", "expires", a.cert.NotAfter)
	}
	return a.renewAndKeep()
}

// has reports whether the folder has a file. It refuses what is no regular file: the
// other end of a link may be another authority's.
func (a *Authority) has(name string) (bool, error) {
	info, err := os.Lstat(a.path(name))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, err
	case !info.Mode().IsRegular():
		return false, fmt.Errorf("%s is not a regular file: name a folder of its own for the authority", name)
	case name == authorityKeyFile:
		return true, onlyForOwner(info, 0o077, "be read")
	}
	return true, nil
}

// onlyForOwner refuses a file that has any of the permissions.
func onlyForOwner(info fs.FileInfo, permissions fs.FileMode, what string) error {
	if runtime.GOOS != "windows" && info.Mode().Perm()&permissions != 0 {
		return fmt.Errorf("%s may %s by others (mode %04o): run chmod go-rwx on it, if nobody else has had access", info.Name(), what, info.Mode().Perm())
	}
	return nil
}

// mustHaveNoOthers refuses a folder with other files than the authority's. There may be
// files that another server is writing now, or was writing when it was killed.
func (a *Authority) mustHaveNoOthers() error {
	entries, err := os.ReadDir(a.dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), authorityKeyFile) && !strings.HasPrefix(e.Name(), authorityCertFile) {
			return fmt.Errorf("there is no authority in this folder, and there are other files, such as %s: name a new or an empty folder", e.Name())
		}
	}
	return nil
}

// makeKey makes the key, unless another server does so first.
func (a *Authority) makeKey() error {
	content, err := keyutil.MakeEllipticPrivateKeyPEM()
	if err != nil {
		return err
	}
	return a.put(authorityKeyFile, content, func(from, to string) error {
		if err := os.Link(from, to); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		return nil
	})
}

// renewAndKeep renews the certificate. On disk it replaces the previous one.
func (a *Authority) renewAndKeep() error {
	before := a.cert
	err := a.renew()
	if err == nil && a.dir != "" {
		err = a.put(authorityCertFile, encodeCertificate(a.cert.Raw), os.Rename)
	}
	if err != nil {
		a.cert = before
	}
	return err
}

// put writes a file that only its owner may read. It appears as a whole, by place.
func (a *Authority) put(name string, content []byte, place func(from, to string) error) error {
	f, err := os.CreateTemp(a.dir, name+".new-*") // of mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(content)
	err = cmp.Or(err, f.Sync(), f.Close())
	if err == nil {
		err = place(f.Name(), a.path(name))
	}
	return err
}

func readKey(path string) (crypto.Signer, error) {
	parsed, err := keyutil.PrivateKeyFromFile(path)
	if err != nil {
		return nil, damaged(path, err)
	}
	key, ok := parsed.(crypto.Signer)
	if !ok {
		return nil, damaged(path, fmt.Errorf("it is a %T", parsed))
	}
	return key, nil
}

func readCertificate(path string, key crypto.Signer) (*x509.Certificate, error) {
	certs, err := cert.CertsFromFile(path)
	if err == nil && len(certs) != 1 {
		err = fmt.Errorf("it has %d certificates", len(certs))
	}
	if err == nil {
		err = checkAuthority(certs[0], key)
	}
	if err != nil {
		return nil, damaged(path, err)
	}
	return certs[0], nil
}

func damaged(path string, err error) error {
	return fmt.Errorf("%s cannot be used: %w: restore it; or name an empty folder, to have a new authority made, and give clients a new kubeconfig", filepath.Base(path), err)
}
