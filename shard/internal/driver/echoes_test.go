package driver

import (
	"testing"

	"github.com/tenure-dev/tenure/shard/internal/ownership"
)

// A write that comes back through the watch shows that the watch goes on. One that was answered with the version that
// the watch had shown before shows nothing.
func TestOnlyAWriteThatMadeAVersionShowsThatTheWatchGoesOn(t *testing.T) {
	for name, changes := range map[string]bool{"a write that changed the record": true,
		"a write that changed nothing": false} {
		t.Run(name, func(t *testing.T) {
			b := newBenchWith(t, func(cfg *ownership.Config) { cfg.WatchTimeout = 4 * lease / 3 })
			b.join()
			renews := func(times int) { // each comes back through the watch of Leases
				for range times {
					b.answerRenewals(1)
					b.feed(Seen{What: ownership.LeaseSeen{Lease: ownership.Lease{ID: "a-1", Duration: lease, Version: b.v}}})
				}
			}
			renews(3)
			b.feed(Seen{What: b.record(ownership.Shard{Assignee: "a-1", Epoch: 4, UID: "u"})})
			shown := b.v
			claim, _ := writing[ownership.WriteShard](b)
			if changes {
				shown++
				b.v++
				b.feed(Seen{What: ownership.ShardSeen{Shard: ownership.Shard{ID: west, Assignee: "a-1", Holder: "a-1", Epoch: 5,
					UID: "u", Version: shown, Floor: 1}}})
			}
			b.feed(Written{Number: claim.Number, Outcome: ownership.Committed, Version: shown})
			renews(2) // five quarters of a lease after it joined, a half after the write
			looked := false
			for _, p := range b.d.pending {
				looked = looked || p.of == Subject{All: true}
			}
			if looked == changes {
				t.Errorf("it looks at all records: %t", looked)
			}
		})
	}
}
