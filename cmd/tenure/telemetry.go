package main

import (
	"context"
	"fmt"
	"os"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/tenure-dev/tenure/pkg/kubeconfig"
	"github.com/tenure-dev/tenure/pkg/telemetry"
	"github.com/tenure-dev/tenure/pkg/telemetry/handoff"
	"github.com/tenure-dev/tenure/shard"
)

// observability is what makes a replica visible: traces and metrics.
type observability struct {
	*telemetry.Telemetry
	moves *handoff.Watcher
	hooks *labHooks
}

// newObservability reads the variables OTEL_*. If one makes no sense, the error is one line.
func newObservability(ctx context.Context, o *options, log logr.Logger) (*observability, error) {
	settings, err := telemetry.ReadSettings(os.Getenv)
	if err != nil {
		return nil, fmt.Errorf("tracing: %w", err)
	}
	exporter, err := telemetry.NewExporter(ctx, settings)
	if err != nil {
		return nil, err
	}
	s := &observability{hooks: &o.hooks}
	var send func(...telemetry.Span)
	if exporter != nil {
		send = func(spans ...telemetry.Span) { s.Send(spans...) }
	}
	s.moves = handoff.NewWatcher(send)
	if err := o.hooks.Open(); err != nil {
		return nil, err
	}
	s.Telemetry = telemetry.New(telemetry.Config{
		Settings: settings, Exporter: exporter, Slow: o.traceSlow, Replica: o.replica, Version: version, Log: log,
		Registerer: metrics.Registry, Epoch: epochOf, Reconciled: s.reconciled,
	})
	if s.Tracing() {
		log.Info("tracing reconciles", "ratio", settings.Ratio, "slow", o.traceSlow.String(), "service", settings.Service,
			"endpoint", settings.Endpoint)
	}
	return s, nil
}

func (s *observability) reconciled(r telemetry.Reconciled) {
	s.moves.Reconciled(r)
	s.hooks.Reconciled(r)
}

func epochOf(ctx context.Context) int64 {
	_, epoch, _ := shard.TenureOf(ctx)
	return int64(epoch)
}

// start sends traces in the background. The returned function sends what is left, and stops. Call it when
// everything else has ended, since handing shards off leaves traces, too.
func (s *observability) start(ctx context.Context) func() {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Run(ctx)
	}()
	return func() {
		s.moves.Flush()
		cancel()
		<-done
	}
}

// wrap makes the API calls over a connection visible.
func (s *observability) wrap(c *rest.Config) error {
	s.Wrap(c)
	s.hooks.Wrap(c)
	return nil
}

// observe adds the metrics of a sharded replica.
func (s *observability) observe(mgr *shard.Manager) error {
	for _, c := range []prometheus.Collector{s.moves, handoff.NewCollector(mgr.Status)} {
		if err := metrics.Registry.Register(c); err != nil {
			return fmt.Errorf("registering metrics: %w", err)
		}
	}
	return nil
}

// homeCredentials is the metric of when the credentials expire by which a replica outside of home reaches it. A person
// has to renew these, as the kubelet does in a Pod of home.
type homeCredentials struct{ home *rest.Config }

var homeExpiry = prometheus.NewDesc("tenure_home_credentials_expiry_timestamp_seconds",
	"When the credentials of --home-kubeconfig expire, in seconds since 1970: the end of the client certificate or of "+
		"the token, where they have one.", nil, nil)

// Describe implements prometheus.Collector.
func (homeCredentials) Describe(ch chan<- *prometheus.Desc) { ch <- homeExpiry }

// Collect implements prometheus.Collector.
func (h homeCredentials) Collect(ch chan<- prometheus.Metric) {
	if end := kubeconfig.ExpiryNow(h.home); !end.IsZero() {
		ch <- prometheus.MustNewConstMetric(homeExpiry, prometheus.GaugeValue, float64(end.Unix()))
	}
}

// metricsOptions returns how metrics are served. Secure means over TLS, and only to clients with a token of the
// home cluster whose user may GET the path there.
func (o *options) metricsOptions() metricsserver.Options {
	m := metricsserver.Options{BindAddress: o.metricsAddress, HandlerOpts: []func(*promhttp.HandlerOpts){
		func(h *promhttp.HandlerOpts) { h.EnableOpenMetrics = true }, // exemplars: the traces of what took long
	}}
	if o.metricsSecure {
		m.SecureServing = true
		m.CertDir = "/nonexistent" // so that it makes a certificate: the default is below /tmp, where others can put theirs
		m.FilterProvider = filters.WithAuthenticationAndAuthorization
	}
	return m
}
