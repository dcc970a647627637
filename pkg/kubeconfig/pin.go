package kubeconfig

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"k8s.io/client-go/rest"
)

// Pin keeps a connection's requests at its server: a redirect to anywhere else isn't followed, and is an answer
// with status 3xx like any other. Otherwise the owner of a workload cluster's API server could make the controller
// send requests from inside the home cluster's network, with the credentials attached. An API server has no reason
// to redirect a client.
func Pin(c *rest.Config) error {
	server, _, err := rest.DefaultServerUrlFor(c)
	if err != nil {
		return fmt.Errorf("the address of the API server can't be read") // the error quotes it
	}
	c.Wrap(func(base http.RoundTripper) http.RoundTripper { return &pinned{base: base, server: server} })
	return nil
}

type pinned struct {
	base   http.RoundTripper
	server *url.URL
}

func (p *pinned) RoundTrip(req *http.Request) (*http.Response, error) {
	res, err := p.base.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	if to := res.Header.Get("Location"); to != "" && !p.stays(req, to) {
		res.Header.Del("Location") // without it, clients return this answer as it is
	}
	return res, nil
}

func (p *pinned) stays(req *http.Request, to string) bool {
	u, err := req.URL.Parse(to)
	return err == nil && u.Scheme == p.server.Scheme && strings.EqualFold(u.Host, p.server.Host)
}

// WrappedRoundTripper returns the transport below.
func (p *pinned) WrappedRoundTripper() http.RoundTripper { return p.base }
