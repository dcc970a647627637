package engage

import (
	"context"
	"io"
	"net/http"
	"net/url"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenure-dev/tenure/pkg/apipath"
)

// inquiry asks the cluster that a request went to whether it answers others. The zero value asks nothing.
type inquiry struct {
	base  http.RoundTripper
	to    *url.URL // of the request
	agent string
}

// answer makes the inquiry, and returns what the answer says; ok is true if the cluster can answer others. It reads an
// object that every cluster has and that an API server can't answer without its storage: if the storage doesn't answer,
// nothing will be written.
func (i inquiry) answer(ctx context.Context) (says Cause, ok bool) {
	prefix, _, version := apipath.Cut(i.to.Path)
	if version == 0 {
		return "", false
	}
	to := url.URL{Scheme: i.to.Scheme, Host: i.to.Host,
		Path: prefix + "/api/v1/namespaces/" + metav1.NamespaceSystem}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, to.String(), nil)
	if err != nil {
		return "", false
	}
	req.Header.Set("User-Agent", i.agent)
	res, err := i.base.RoundTrip(req)
	if err != nil {
		return "", false
	}
	disbelieve(req, res)
	_, err = io.CopyN(io.Discard, res.Body, largestObject) // so that the connection can be used again
	_ = res.Body.Close()
	if err != nil && err != io.EOF { // it began to answer, and no more came
		return "", false
	}
	return causeOf(res.StatusCode), res.StatusCode < http.StatusInternalServerError
}
