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

// Expiry returns when the credentials of a connection expire: the earlier end of its client certificate and of its
// token, if that is a JWT. It is zero if they never expire, or if the configuration doesn't show it: with other
// tokens, and with files and programs that renew what they give. Nothing is verified; the API server does that.
func Expiry(c *rest.Config) time.Time {
	token := c.BearerToken
	if c.BearerTokenFile != "" { // the token is what was in the file when it was first read
		token = ""
	}
	var ends time.Time
	_, tokenEnd := TokenLife(token)
	for _, end := range []time.Time{certificateEnd(c.CertData), tokenEnd} {
		if !end.IsZero() && (ends.IsZero() || end.Before(ends)) {
			ends = end
		}
	}
	return ends
}

// ExpiryNow is [Expiry], with the token and the client certificate that are in their files now. It is for files that a
// person has to replace.
func ExpiryNow(c *rest.Config) time.Time {
	now := rest.Config{BearerToken: c.BearerToken, TLSClientConfig: rest.TLSClientConfig{CertData: c.CertData}}
	if c.BearerTokenFile != "" {
		token, err := read(c.BearerTokenFile, maxToken)
		if err != nil {
			return time.Time{} // requests go on with the token of before
		}
		now.BearerToken = strings.TrimSpace(string(token))
	}
	if len(c.CertData) == 0 && c.CertFile != "" {
		certificate, err := read(c.CertFile, maxFile)
		if err != nil {
			return time.Time{} // likewise
		}
		now.CertData = certificate
	}
	return Expiry(&now)
}

const (
	// A person gets notice of the end of credentials when this part of their life is left, or this time if it is shorter.
	// The alert TenureCredentialsExpireSoon has the same time.
	noticePart, noticeMost = 5, 7 * 24 * time.Hour
)

// EndSoon reports whether credentials have expired or will soon: less than a fifth of their life is left, or less than
// seven days if that is shorter. issued may be zero, for a life that isn't known; with expires zero it is false.
func EndSoon(issued, expires, now time.Time) bool {
	if expires.IsZero() {
		return false
	}
	notice := noticeMost
	if !issued.IsZero() {
		notice = min(notice, max(0, expires.Sub(issued)/noticePart))
	}
	return expires.Sub(now) < notice
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

// TokenLife returns when a JWT was issued and when it expires: its claims iat and exp, by the issuer's clock. A
// time that is missing or makes no sense is zero. Nothing is verified.
func TokenLife(token string) (issued, expires time.Time) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 || len(token) > maxToken {
		return issued, expires
	}
	claims, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(parts[1], "="))
	if err != nil {
		return issued, expires
	}
	var c struct {
		Iat *float64 `json:"iat"`
		Exp *float64 `json:"exp"`
	}
	if json.Unmarshal(claims, &c) != nil {
		return issued, expires
	}
	return moment(c.Iat), moment(c.Exp)
}

func moment(claim *float64) time.Time {
	if claim == nil || *claim <= 0 || *claim > latest {
		return time.Time{}
	}
	return time.Unix(int64(*claim), 0).UTC() // JSON can't show the year 10000 of a zone further east
}
