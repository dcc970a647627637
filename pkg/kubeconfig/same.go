package kubeconfig

import (
	"reflect"

	"k8s.io/client-go/rest"
)

// Same reports whether two connections lead to the same address with the same credentials and the same trust.
// Connections that go through a proxy, or get credentials from a program or a file, are never the same, since that
// can't be told.
func Same(a, b *rest.Config) bool {
	return plainly(a) && plainly(b) && a.Host == b.Host && a.Username == b.Username && a.Password == b.Password &&
		a.BearerToken == b.BearerToken && reflect.DeepEqual(a.TLSClientConfig, b.TLSClientConfig) &&
		reflect.DeepEqual(a.Impersonate, b.Impersonate)
}

// plainly reports whether a configuration depends on no proxy, program or file.
func plainly(c *rest.Config) bool {
	return c.Proxy == nil && c.Dial == nil && c.Transport == nil && c.ExecProvider == nil && c.AuthProvider == nil &&
		c.BearerTokenFile == "" && c.CertFile == "" && c.KeyFile == "" && c.CAFile == ""
}
