package localplane

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// identity is a certificate with its key, both in PEM.
type identity struct{ cert, key []byte }

// pki is what one cluster needs to prove who is who. It certifies further clients, too.
type pki struct {
	signer                             crypto.Signer
	issuer                             *x509.Certificate
	admin, manager, scheduler, kubelet identity
}

// createPKI makes a cluster's certificates, and a folder with those files of it that its components are told to read.
func createPKI(folder string) (*pki, error) {
	key, _, err := newKey()
	if err != nil {
		return nil, err
	}
	p := &pki{signer: key}
	config := cert.Config{CommonName: "tenure-local-ca", NotBefore: validSince()}
	if p.issuer, err = cert.NewSelfSignedCACert(config, key); err != nil {
		return nil, err
	}
	for who, subject := range map[*identity]pkix.Name{
		&p.admin:     {CommonName: "tenure-admin", Organization: []string{"system:masters"}},
		&p.manager:   {CommonName: "system:kube-controller-manager"},
		&p.scheduler: {CommonName: "system:kube-scheduler"},
		// KWOK plays every node, so no single node's rights would do.
		&p.kubelet: {CommonName: "kwok", Organization: []string{"system:masters"}},
	} {
		if *who, err = p.client(subject); err != nil {
			return nil, err
		}
	}
	server, err := p.certify(&x509.Certificate{
		Subject:     pkix.Name{CommonName: "kube-apiserver"},
		DNSNames:    []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	if err != nil {
		return nil, err
	}
	_, serviceAccounts, err := newKey()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, err
	}
	for file, content := range map[string][]byte{"ca.crt": p.ca(), "apiserver.crt": server.cert,
		"apiserver.key": server.key, "service-account.key": serviceAccounts} {
		if err := os.WriteFile(filepath.Join(folder, file), content, 0o600); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// ca is the certificate of the cluster's authority, in PEM.
func (p *pki) ca() []byte { return inPEM(p.issuer.Raw) }

// client makes the identity of a user, the subject's CommonName, in the groups that are its Organization.
func (p *pki) client(subject pkix.Name) (identity, error) {
	return p.certify(&x509.Certificate{Subject: subject, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
}

// certify makes a key and the certificate for it.
func (p *pki) certify(template *x509.Certificate) (identity, error) {
	key, keyPEM, err := newKey()
	if err != nil {
		return identity{}, err
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)); err != nil {
		return identity{}, err
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.NotBefore, template.NotAfter = validSince(), p.issuer.NotAfter
	der, err := x509.CreateCertificate(rand.Reader, template, p.issuer, key.Public(), p.signer)
	return identity{cert: inPEM(der), key: keyPEM}, err
}

// validSince is an hour ago: a clock that is set back a little must not lock anyone out.
func validSince() time.Time { return time.Now().Add(-time.Hour) }

func inPEM(certificate []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: cert.CertificateBlockType, Bytes: certificate})
}

// newKey makes a P-256 key, and its PEM: a hundred times quicker to make than RSA.
func newKey() (*ecdsa.PrivateKey, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	inPEM, err := keyutil.MarshalPrivateKeyToPEM(key)
	return key, inPEM, err
}
