package kubeconfig

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
)

// mostRead bounds what is read of an answer. A version takes half a kilobyte, and something between may add to it.
const mostRead = 64 << 10

// Ask makes one small request that every API server answers to every client, and returns the HTTP status. An error
// means that there was no answer, or one that is no API server's: a page to log in at comes with status 200, too. It
// follows no redirect. With once, it closes the connection afterwards, unless something else uses it.
func Ask(ctx context.Context, cfg *rest.Config, once bool) (status int, err error) {
	httpClient, err := HTTPClientFor(cfg)
	if err != nil {
		return 0, fmt.Errorf("asking for the version: %w", err)
	}
	if once || cfg.Proxy != nil { // client-go shares no connections through a proxy: they would stay open
		defer utilnet.CloseIdleConnectionsFor(httpClient.Transport)
	}
	return AskOver(ctx, httpClient, cfg.Host)
}

// AskOver is [Ask] of a server over a client that exists. It leaves the connection open.
func AskOver(ctx context.Context, httpClient *http.Client, host string) (status int, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(host, "/")+"/version", nil)
	if err != nil {
		return 0, fmt.Errorf("asking for the version: %w", err)
	}
	req.Header.Set("User-Agent", "tenure (health)")
	here := *httpClient
	here.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	res, err := here.Do(req)
	var body []byte
	if err == nil {
		// What isn't read costs both sides another frame. What can't be read of a refusal changes nothing.
		body, err = io.ReadAll(io.LimitReader(res.Body, mostRead))
		_ = res.Body.Close()
		if res.StatusCode >= http.StatusMultipleChoices {
			return res.StatusCode, nil
		}
	}
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return 0, fmt.Errorf("asking for the version: %w", err)
	}
	var says struct{ GitVersion, Major, Minor string }
	if err := json.Unmarshal(body, &says); err != nil || says.GitVersion == "" && (says.Major == "" || says.Minor == "") {
		form, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type"))
		if form != "text/html" && form != runtime.ContentTypeJSON { // no text of the server's own: it was shown the token
			form = "something"
		}
		return 0, apierrors.NewServiceUnavailable(fmt.Sprintf("asking for the version: %d with %s that is no version: "+
			"is this an API server?", res.StatusCode, form))
	}
	return res.StatusCode, nil
}
