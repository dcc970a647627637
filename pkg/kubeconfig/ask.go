package kubeconfig

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
)

// mostRead bounds what is read of an answer; a version takes half a kilobyte.
const mostRead = 4 << 10

// Ask makes one small request that every API server answers to every client, and returns the HTTP status. An error
// means that there was no answer. With once, it closes the connection afterwards, unless something else uses it.
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
	res, err := httpClient.Do(req)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return 0, fmt.Errorf("asking for the version: %w", err)
	}
	// What isn't read costs both sides another frame. What can't be read changes nothing: the server has answered.
	_, _ = io.CopyN(io.Discard, res.Body, mostRead)
	return res.StatusCode, res.Body.Close()
}
