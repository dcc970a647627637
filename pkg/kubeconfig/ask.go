package kubeconfig

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
)

// Ask makes one small request that every API server answers to everybody, and returns the status of the answer. An
// error means that there was none. once closes the connection afterwards, unless somebody else uses it.
func Ask(ctx context.Context, cfg *rest.Config, once bool) (status int, err error) {
	cfg = rest.CopyConfig(cfg)
	cfg.UserAgent = "tenure (health)"
	transport, err := TransportFor(cfg)
	if err != nil {
		return 0, fmt.Errorf("asking for the version: %w", err)
	}
	httpClient := &http.Client{Transport: transport, Timeout: cfg.Timeout}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(cfg.Host, "/")+"/version", nil)
	if err != nil {
		return 0, fmt.Errorf("asking for the version: %w", err)
	}
	if once || cfg.Proxy != nil { // client-go shares no connections that go through a proxy: those would stay
		defer utilnet.CloseIdleConnectionsFor(transport)
	}
	res, err := httpClient.Do(req)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return 0, fmt.Errorf("asking for the version: %w", err)
	}
	return res.StatusCode, res.Body.Close()
}
