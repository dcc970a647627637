package main

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/tenure-dev/tenure/shard"
	"github.com/tenure-dev/tenure/test/must"
)

func TestTheEndOfTheTokenForHomeIsAMetric(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	seen := homeCredentials{&rest.Config{BearerTokenFile: path}}
	if n := testutil.CollectAndCount(seen); n != 0 {
		t.Errorf("without a token: %d series", n)
	}
	for _, end := range []int64{1_900_000_000, 2_000_000_000} { // the file is replaced while the replica runs
		token := "e30." + base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, `{"exp":%d}`, end)) + ".c2ln"
		must.Succeed(t, os.WriteFile(path, []byte(token), 0o600))
		if got := testutil.ToFloat64(seen); got != float64(end) {
			t.Errorf("%v, want %d", got, end)
		}
	}
}

// Only the end of a token in a file that somebody named is worth a metric: the kubelet renews that of a Pod in home
// every hour.
func TestHomeIsNamedByTheFlagOrKUBECONFIG(t *testing.T) {
	t.Setenv("KUBECONFIG", "")
	if (&options{}).namesHome() {
		t.Error("nothing names it")
	}
	if !(&options{homeKubeconfig: "file"}).namesHome() {
		t.Error("the flag names it")
	}
	t.Setenv("KUBECONFIG", "file")
	if !(&options{}).namesHome() {
		t.Error("the variable names it")
	}
}

func TestMovesNameNoTraceWhileTracingIsOff(t *testing.T) {
	registry := metrics.Registry
	t.Cleanup(func() { metrics.Registry = registry })
	for _, endpoint := range []string{"", "http://127.0.0.1:9"} {
		t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
		metrics.Registry = prometheus.NewRegistry()
		obs, err := newObservability(t.Context(), &options{}, logr.Discard())
		must.Succeed(t, err)
		metrics.Registry.MustRegister(obs.moves)
		obs.moves.Activated(shard.Activation{Gap: time.Second})
		families, err := metrics.Registry.Gather()
		must.Succeed(t, err)
		if named := strings.Contains(fmt.Sprint(families), "trace_id"); named != (endpoint != "") {
			t.Errorf("endpoint %q: a trace is named: %v", endpoint, named)
		}
	}
}
