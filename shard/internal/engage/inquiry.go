package engage

import (
	"context"
	"io"
	"net/http"
	"net/url"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// inquiry is a question to the cluster that a request went to: does it answer others? The zero value is none.
type inquiry struct {
	base  http.RoundTripper
	to    *url.URL // of the request
	agent string
}

// isAnswered asks. It reads something that every cluster has, and that an API server can't answer by itself: where its
// storage doesn't answer, nothing will be written.
func (i inquiry) isAnswered(ctx context.Context) bool {
	prefix, _, version := cutAPI(i.to.Path)
	if version == 0 {
		return false
	}
	to := url.URL{Scheme: i.to.Scheme, Host: i.to.Host,
		Path: prefix + "/api/v1/namespaces/" + metav1.NamespaceSystem}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, to.String(), nil)
	if err != nil {
		return false
	}
	req.Header.Set("User-Agent", i.agent)
	res, err := i.base.RoundTrip(req)
	if err != nil {
		return false
	}
	_, _ = io.CopyN(io.Discard, res.Body, largestObject) // so that the connection can be used again
	_ = res.Body.Close()
	return res.StatusCode < http.StatusInternalServerError
}
