// Package certs makes certificates for tests.
package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/test/must"
)

// Pair makes a certificate that is good for an hour, and its key, both in PEM.
func Pair(t testing.TB) (certificate, key []byte) {
	t.Helper()
	return PairUntil(t, time.Now().Add(time.Hour))
}

// PairUntil makes a certificate that is good until then, and its key, both in PEM.
func PairUntil(t testing.TB, end time.Time) (certificate, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.Succeed(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "x"}, NotAfter: end}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	must.Succeed(t, err)
	secret, err := x509.MarshalECPrivateKey(private)
	must.Succeed(t, err)
	return inPEM("CERTIFICATE", der), inPEM("EC PRIVATE KEY", secret)
}

// Of is the certificate of a server that speaks TLS, in PEM. It verifies the server.
func Of(server *httptest.Server) []byte { return inPEM("CERTIFICATE", server.Certificate().Raw) }

func inPEM(kind string, content []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content})
}
