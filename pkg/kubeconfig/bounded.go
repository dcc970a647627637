package kubeconfig

import (
	"net/http"

	"k8s.io/client-go/rest"
)

// largestAnswer bounds an answer that isn't a list or a watch, in bytes: several times what an API server stores in one
// object. Package engage has the same bound for requests of shards, which it counts as well.
const largestAnswer = 16 << 20

// Bound bounds the answers of a connection that is used for small ones only.
func Bound(config *rest.Config) {
	config.DisableCompression = true // a small answer could become a large one
	config.Wrap(Bounded)
}

// Bounded wraps a transport for requests whose answers are small. Reading more of an answer than 16 MiB fails, so that
// a server that isn't what it claims to be can't fill the memory.
func Bounded(base http.RoundTripper) http.RoundTripper { return bounded{base} }

type bounded struct{ base http.RoundTripper }

func (b bounded) RoundTrip(req *http.Request) (*http.Response, error) {
	res, err := b.base.RoundTrip(req)
	if err == nil {
		res.Body = http.MaxBytesReader(nil, res.Body, largestAnswer)
	}
	return res, err
}

// WrappedRoundTripper returns the inner transport.
func (b bounded) WrappedRoundTripper() http.RoundTripper { return b.base }
