package main

import (
	"context"
	"fmt"
	"testing"
)

// seenHosts counts requests by host.
type seenHosts map[string]int

func (s seenHosts) Increment(_ context.Context, _, _, host string) { s[host]++ }

func TestInventedHostsDoNotFillTheMetrics(t *testing.T) {
	seen := seenHosts{}
	metric := newFewHosts(seen)
	metric.Increment(t.Context(), "200", "GET", "west:6443")
	for i := range 100_000 {
		metric.Increment(t.Context(), "200", "GET", fmt.Sprintf("host-%d:6443", i))
	}
	metric.Increment(t.Context(), "200", "GET", "west:6443")
	if seen["west:6443"] != 2 || seen["other"] != 100_001-maxHosts || len(seen) != maxHosts+1 {
		t.Errorf("%d hosts, west %d times, others %d times", len(seen), seen["west:6443"], seen["other"])
	}
}
