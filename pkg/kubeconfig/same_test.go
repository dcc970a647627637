package kubeconfig

import (
	"net/http"
	"net/url"
	"testing"

	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

func TestConnectionsAreTheSameOnlyIfNothingTellsThemApart(t *testing.T) {
	one := func() *rest.Config {
		return &rest.Config{Host: "https://h", BearerToken: "t", Username: "u", Password: "p",
			TLSClientConfig: rest.TLSClientConfig{CAData: []byte("ca"), CertData: []byte("c")}}
	}
	if used := one(); true {
		used.UserAgent, used.QPS, used.WrapTransport = "x", 5, func(rt http.RoundTripper) http.RoundTripper { return rt }
		if !Same(one(), used) {
			t.Error("how it is used tells it apart")
		}
	}
	for name, edit := range map[string]func(c *rest.Config){
		"server":      func(c *rest.Config) { c.Host = "https://other" },
		"token":       func(c *rest.Config) { c.BearerToken = "other" },
		"user":        func(c *rest.Config) { c.Username = "other" },
		"password":    func(c *rest.Config) { c.Password = "other" },
		"certificate": func(c *rest.Config) { c.CertData = []byte("other") },
		"authority":   func(c *rest.Config) { c.CAData = nil },
		"trust":       func(c *rest.Config) { c.Insecure = true },
		"name":        func(c *rest.Config) { c.ServerName = "other" },
		"as whom":     func(c *rest.Config) { c.Impersonate.UserName = "other" },
	} {
		c := one()
		if edit(c); Same(one(), c) {
			t.Errorf("another %s doesn't tell them apart", name)
		}
	}
	for name, edit := range map[string]func(c *rest.Config){
		"proxy":      func(c *rest.Config) { c.Proxy = func(*http.Request) (*url.URL, error) { return nil, nil } },
		"program":    func(c *rest.Config) { c.ExecProvider = &clientcmdapi.ExecConfig{} },
		"token file": func(c *rest.Config) { c.BearerTokenFile = "f" },
		"key file":   func(c *rest.Config) { c.KeyFile = "f" },
	} {
		c := one()
		if edit(c); Same(c, c) {
			t.Errorf("one with a %s is taken for the same", name)
		}
	}
}
