package driver

import (
	"testing"

	"github.com/tenure-dev/tenure/shard/internal/ownership"
)

func TestTheNextIncarnationKnowsWhichClustersCannotBeUsed(t *testing.T) {
	b := joined(t)
	b.feed(Health{Cluster: "west"})
	b.lapsed(true)
	b.pass(lease)
	b.join()
	all[Write](b)
	b.shows(ownership.Shard{Assignee: "a-2", Epoch: 1 << 40, UID: "u"})
	for _, w := range writes[ownership.WriteShard](b) {
		t.Errorf("it asks for %+v, and can't use the cluster", w.Effect)
	}
	b.feed(Health{"west", true})
	b.pass(lease / 100) // what it states is computed at most every 10 ms
	if _, claim := writing[ownership.WriteShard](b); claim.Kind != ownership.ClaimFree {
		t.Errorf("%+v", claim)
	}
}
