package shard

import (
	"fmt"
	"testing"
	"time"

	"github.com/go-logr/logr"

	"github.com/tenure-dev/tenure/shard/internal/ownership"
)

// The protocol's loop publishes the state. Nothing is published while it stands still, and the lease ends all the same.
func TestAReplicaWhoseLeaseHasEndedIsNotReadyThoughNothingSaysSo(t *testing.T) {
	m := &Manager{node: newNode(Config{}.withDefaults(), "", nil, logr.Discard(), nil)}
	says := func() string { return fmt.Sprint(m.Ready(nil) == nil, m.Status().Member, m.Coordinates()) }
	if got := says(); got != "false false false" {
		t.Errorf("before the first lease: ready, a member, coordinator: %s", got)
	}
	l := &validity{clock: m.node.clock, over: func() {}}
	m.node.status.Store(&Status{Coordinator: true, validity: l})
	for _, c := range []struct {
		left time.Duration
		want string
	}{{time.Hour, "true true true"}, {0, "false false false"}} {
		now := m.node.clock.now()
		l.set(ownership.Instant{Mono: now.Mono + c.left, Wall: now.Wall + c.left})
		if got := says(); got != c.want {
			t.Errorf("with %v left of its lease: ready, a member, coordinator: %s, want %s", c.left, got, c.want)
		}
	}
}
