package main

import (
	"context"
	"sync"

	clientmetrics "k8s.io/client-go/tools/metrics"
)

// maxHosts is how many API servers have series of their own in rest_client_requests_total.
const maxHosts = 1000

// fewHosts counts the requests to all further API servers under the name "other". Otherwise a user who may write
// kubeconfigs could name a new host each time, and a series is never forgotten.
type fewHosts struct {
	clientmetrics.ResultMetric

	mu    sync.Mutex // guards known
	known map[string]bool
}

func newFewHosts(inner clientmetrics.ResultMetric) *fewHosts {
	return &fewHosts{ResultMetric: inner, known: map[string]bool{}}
}

// Increment implements clientmetrics.ResultMetric.
func (f *fewHosts) Increment(ctx context.Context, code, method, host string) {
	f.mu.Lock()
	switch {
	case f.known[host]:
	case len(f.known) < maxHosts:
		f.known[host] = true
	default:
		host = "other"
	}
	f.mu.Unlock()
	f.ResultMetric.Increment(ctx, code, method, host)
}
