package kubeconfig

import (
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"strings"
	"time"

	"k8s.io/client-go/rest"
)

// Expiry is when the credentials of a connection expire: the earliest end of its client certificate and of its token, if
// that is a JWT. It is zero where there is no end, or where it isn't in the configuration: other tokens, and files and
// programs that renew what they give. Nothing is verified; the API server does that.
func Expiry(c *rest.Config) time.Time {
	token := c.BearerToken
	if c.BearerTokenFile != "" { // the token is what was in the file when it was first read
		token = ""
	}
	var ends time.Time
	for _, end := range []time.Time{certificateEnd(c.CertData), tokenEnd(token)} {
		if !end.IsZero() && (ends.IsZero() || end.Before(ends)) {
			ends = end
		}
	}
	return ends
}

// certificateEnd is the end of the first certificate, which is the client's own; others lead to an authority.
func certificateEnd(text []byte) time.Time {
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		if certificate, err := x509.ParseCertificate(block.Bytes); err == nil {
			return certificate.NotAfter
		}
		return time.Time{}
	}
	return time.Time{}
}

// latest is the last second of the year 9999. What claims to be good for longer has no end.
const latest = 253402300799

// tokenEnd is the claim exp of a JWT.
func tokenEnd(token string) time.Time {
	parts := strings.Split(token, ".")
	if len(parts) != 3 || len(token) > maxToken {
		return time.Time{}
	}
	claims, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(parts[1], "="))
	if err != nil {
		return time.Time{}
	}
	var c struct {
		Exp *float64 `json:"exp"`
	}
	if json.Unmarshal(claims, &c) != nil || c.Exp == nil || *c.Exp <= 0 || *c.Exp > latest {
		return time.Time{}
	}
	return time.Unix(int64(*c.Exp), 0)
}
