package localplane

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
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// validity of all certificates: long enough for any kept folder, and nobody has to renew one.
const validity = 10 * 365 * 24 * time.Hour

// identity is a certificate with its key, both in PEM.
type identity struct{ cert, key []byte }

// authority signs the certificates of one cluster.
type authority struct {
	identity
	signer crypto.Signer
	issuer *x509.Certificate
}

// pki is what one cluster needs to prove who is who.
type pki struct {
	ca                                 identity
	admin, manager, scheduler, kubelet identity
}

// loadOrCreatePKI reads a cluster's certificates from a folder, and makes them first if the folder has none. Files
// that the API server reads (ca.crt, apiserver.crt, apiserver.key, service-account.key) stay there.
func loadOrCreatePKI(folder string) (*pki, error) {
	// The marker is written last: a start that was killed half way leaves none, and the next one starts over.
	marker := filepath.Join(folder, "complete")
	if _, err := os.Stat(marker); errors.Is(err, os.ErrNotExist) {
		if err := createPKI(folder); err != nil {
			return nil, fmt.Errorf("making certificates in %s: %w", folder, withHint(err))
		}
		if err := os.WriteFile(marker, nil, 0o600); err != nil {
			return nil, fmt.Errorf("making certificates in %s: %w", folder, withHint(err))
		}
	}
	var p pki
	var failures []error
	read := func(name string) []byte {
		content, err := os.ReadFile(filepath.Join(folder, name))
		failures = append(failures, err)
		return content
	}
	for name, into := range map[string]*identity{
		"ca": &p.ca, "admin": &p.admin, "controller-manager": &p.manager, "scheduler": &p.scheduler, "kubelet": &p.kubelet,
	} {
		into.cert, into.key = read(name+".crt"), read(name+".key")
	}
	if err := errors.Join(failures...); err != nil {
		return nil, fmt.Errorf("reading certificates: %w", err)
	}
	return &p, nil
}

func createPKI(folder string) error {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return err
	}
	ca, err := newAuthority()
	if err != nil {
		return err
	}
	if err := ca.write(folder, "ca"); err != nil {
		return err
	}
	server := &x509.Certificate{
		Subject:     pkix.Name{CommonName: "kube-apiserver"},
		DNSNames:    []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	if err := ca.issue(folder, "apiserver", server); err != nil {
		return err
	}
	for name, subject := range map[string]pkix.Name{
		"admin":              {CommonName: "tenure-admin", Organization: []string{"system:masters"}},
		"controller-manager": {CommonName: "system:kube-controller-manager"},
		"scheduler":          {CommonName: "system:kube-scheduler"},
		// KWOK plays every node, so no single node's rights would do.
		"kubelet": {CommonName: "kwok", Organization: []string{"system:masters"}},
	} {
		if err := ca.issue(folder, name, clientCertificate(subject)); err != nil {
			return err
		}
	}
	_, key, err := newKey()
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, "service-account.key"), key, 0o600)
}

func clientCertificate(subject pkix.Name) *x509.Certificate {
	return &x509.Certificate{Subject: subject, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
}

// client makes the identity of a user in some groups.
func (p *pki) client(user string, groups []string) (identity, error) {
	pair, err := tls.X509KeyPair(p.ca.cert, p.ca.key)
	if err != nil {
		return identity{}, fmt.Errorf("reading the cluster's certificate authority: %w", err)
	}
	signer, ok := pair.PrivateKey.(crypto.Signer)
	if !ok {
		return identity{}, fmt.Errorf("the key of the cluster's certificate authority is a %T, which can't sign",
			pair.PrivateKey)
	}
	ca := &authority{identity: p.ca, signer: signer, issuer: pair.Leaf}
	return ca.certify(clientCertificate(pkix.Name{CommonName: user, Organization: groups}))
}

func newAuthority() (*authority, error) {
	key, keyPEM, err := newKey()
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: "tenure-local-ca"},
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	a := &authority{signer: key, issuer: template}
	der, err := a.sign(template, key.Public())
	if err != nil {
		return nil, err
	}
	if a.issuer, err = x509.ParseCertificate(der); err != nil {
		return nil, err
	}
	a.identity = newIdentity(der, keyPEM)
	return a, nil
}

// issue writes folder/name.crt and folder/name.key.
func (a *authority) issue(folder, name string, template *x509.Certificate) error {
	issued, err := a.certify(template)
	if err != nil {
		return err
	}
	return issued.write(folder, name)
}

// certify makes a key and the certificate for it.
func (a *authority) certify(template *x509.Certificate) (identity, error) {
	key, keyPEM, err := newKey()
	if err != nil {
		return identity{}, err
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	der, err := a.sign(template, key.Public())
	return newIdentity(der, keyPEM), err
}

func newIdentity(der, key []byte) identity {
	return identity{cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), key: key}
}

func (i identity) write(folder, name string) error {
	if err := os.WriteFile(filepath.Join(folder, name+".crt"), i.cert, 0o600); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, name+".key"), i.key, 0o600)
}

func (a *authority) sign(template *x509.Certificate, public crypto.PublicKey) ([]byte, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	template.SerialNumber = serial
	template.NotBefore = time.Now().Add(-time.Hour) // a clock set back a little must not lock anyone out
	template.NotAfter = time.Now().Add(validity)
	return x509.CreateCertificate(rand.Reader, template, a.issuer, public, a.signer)
}

// newKey makes a P-256 key: a hundred times quicker to make than RSA.
func newKey() (*ecdsa.PrivateKey, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, nil, err
	}
	return key, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), nil
}
