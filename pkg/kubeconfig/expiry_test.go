package kubeconfig

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/tenure-dev/tenure/test/certs"
	"github.com/tenure-dev/tenure/test/must"
)

// jwt is a token with these claims.
func jwt(claims string) string {
	return "e30." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".c2ln"
}

func TestWhenCredentialsExpire(t *testing.T) {
	soon, late := time.Unix(1_900_000_000, 0), time.Unix(2_000_000_000, 0)
	first, _ := certs.PairUntil(t, soon)
	second, _ := certs.PairUntil(t, late)
	for what, c := range map[string]struct {
		config rest.Config
		want   time.Time
	}{
		"nothing":       {},
		"a certificate": {rest.Config{TLSClientConfig: rest.TLSClientConfig{CertData: first}}, soon},
		"a certificate and its issuer": {rest.Config{
			TLSClientConfig: rest.TLSClientConfig{CertData: slices.Concat(second, first)},
		}, late},
		"a key before the certificate": {rest.Config{
			TLSClientConfig: rest.TLSClientConfig{CertData: slices.Concat(
				[]byte("-----BEGIN X-----\n-----END X-----\n"), first)},
		}, soon},
		"no certificate": {rest.Config{
			TLSClientConfig: rest.TLSClientConfig{CertData: []byte(
				"-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n")},
		}, time.Time{}},
		"a token": {rest.Config{BearerToken: jwt(`{"exp":1900000000}`)}, soon},
		"a token with a padded body": {rest.Config{BearerToken: "e30." +
			base64.URLEncoding.EncodeToString([]byte(`{"exp": 1900000000 }`)) + ".x"}, soon},
		"a token with a part of a second": {rest.Config{BearerToken: jwt(`{"exp":1900000000.5}`)}, soon},
		"a token without end":             {rest.Config{BearerToken: jwt(`{"sub":"x"}`)}, time.Time{}},
		"a token whose end is no number":  {rest.Config{BearerToken: jwt(`{"exp":"soon"}`)}, time.Time{}},
		"a token for ever and ever":       {rest.Config{BearerToken: jwt(`{"exp":1e300}`)}, time.Time{}},
		"a token that is no JWT":          {rest.Config{BearerToken: "0123456789abcdef"}, time.Time{}},
		"a token with dots":               {rest.Config{BearerToken: "a.b!.c"}, time.Time{}},
		"both, the token first": {rest.Config{BearerToken: jwt(`{"exp":1900000000}`),
			TLSClientConfig: rest.TLSClientConfig{CertData: second}}, soon},
		"both, the certificate first": {rest.Config{BearerToken: jwt(`{"exp":2000000000}`),
			TLSClientConfig: rest.TLSClientConfig{CertData: first}}, soon},
		"a file that renews itself": {rest.Config{BearerToken: jwt(`{"exp":1900000000}`), BearerTokenFile: "/token"},
			time.Time{}},
	} {
		if got := Expiry(&c.config); !got.Equal(c.want) {
			t.Errorf("%s: %v, want %v", what, got, c.want)
		}
	}
}

func TestATokenFileIsReadAgainForItsEnd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	c := &rest.Config{BearerToken: "the first that was read", BearerTokenFile: path}
	if got := ExpiryNow(c); !got.IsZero() {
		t.Errorf("without the file: %v", got)
	}
	for _, end := range []int64{1_900_000_000, 2_000_000_000} {
		must.Succeed(t, os.WriteFile(path, []byte(jwt(fmt.Sprintf(`{"exp":%d}`, end))+"\n"), 0o600))
		if got := ExpiryNow(c); got.Unix() != end {
			t.Errorf("%v, want %d", got, end)
		}
	}
}

func TestACertificateFileIsReadAgainForItsEnd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "client.pem")
	c := &rest.Config{TLSClientConfig: rest.TLSClientConfig{CertFile: path}}
	if got := ExpiryNow(c); !got.IsZero() {
		t.Errorf("without the file: %v", got)
	}
	for _, end := range []time.Time{time.Unix(1_900_000_000, 0), time.Unix(2_000_000_000, 0)} {
		certificate, _ := certs.PairUntil(t, end)
		must.Succeed(t, os.WriteFile(path, certificate, 0o600))
		if got := ExpiryNow(c); !got.Equal(end) {
			t.Errorf("%v, want %v", got, end)
		}
	}
}

func TestTheEndOfCredentialsIsSaidInTime(t *testing.T) {
	now := time.Unix(1_900_000_000, 0)
	const day = 24 * time.Hour
	for _, c := range []struct {
		lived, left time.Duration // lived 0: since when isn't known
		want        bool
	}{
		{400 * day, 8 * day, false}, {400 * day, 6 * day, true}, {0, 8 * day, false}, {0, 6 * day, true},
		{7 * time.Hour, 2 * time.Hour, false}, {9 * time.Hour, 2 * time.Hour, true}, {day, -time.Hour, true},
	} {
		var issued time.Time
		if c.lived != 0 {
			issued = now.Add(-c.lived)
		}
		if got := EndSoon(issued, now.Add(c.left), now); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
	if EndSoon(now, time.Time{}, now) {
		t.Error("what has no end ends soon")
	}
}

func TestHowLongATokenLives(t *testing.T) {
	issued, expires := TokenLife(jwt(`{"iat":1900000000,"exp":1900000600}`))
	if issued.Unix() != 1_900_000_000 || expires.Unix() != 1_900_000_600 {
		t.Errorf("from %v to %v", issued, expires)
	}
}

func FuzzTokenLife(f *testing.F) {
	f.Add("e30.eyJleHAiOjE5MDAwMDAwMDB9.c2ln")
	f.Fuzz(func(t *testing.T, token string) {
		issued, expires := TokenLife(token)
		for _, at := range []time.Time{issued, expires} {
			if !at.IsZero() && (at.Unix() < 0 || at.Unix() > latest) {
				t.Errorf("%q: %v", token, at)
			}
		}
	})
}

func TestAnEndCanBeShownInEveryTimeZone(t *testing.T) {
	defer func(was *time.Location) { time.Local = was }(time.Local)
	time.Local = time.FixedZone("east", 3600)
	_, expires := TokenLife(jwt(`{"exp":253402300799}`))
	if _, err := expires.MarshalJSON(); err != nil || expires.IsZero() {
		t.Errorf("%v: %v", expires, err)
	}
}
