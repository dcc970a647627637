package kubeconfig

import (
	"reflect"

	"k8s.io/client-go/rest"
)

// Same reports whether two connections lead to the same address with the same credentials and the same trust. Those
// that go through a proxy, or ask a program or a file for their credentials, are never the same: it can't be told.
func Same(a, b *rest.Config) bool {
	return plainly(a) && plainly(b) && a.Host == b.Host && a.Username == b.Username && a.Password == b.Password &&
		a.BearerToken == b.BearerToken && reflect.DeepEqual(a.TLSClientConfig, b.TLSClientConfig) &&
		reflect.DeepEqual(a.Impersonate, b.Impersonate)
}

// plainly reports whether a configuration says all by itself.
func plainly(c *rest.Config) bool {
	return c.Proxy == nil && c.Dial == nil && c.Transport == nil && c.ExecProvider == nil && c.AuthProvider == nil &&
		c.BearerTokenFile == "" && c.CertFile == "" && c.KeyFile == "" && c.CAFile == ""
}
