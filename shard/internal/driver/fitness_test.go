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
	b.feed(Seen{What: b.record(ownership.Shard{Assignee: "a-2", Epoch: 1 << 40, UID: "u"})})
	for _, w := range all[Write](b) {
		if claim, ok := w.Effect.(ownership.WriteShard); ok {
			t.Errorf("claims %s, whose cluster it can't use", claim.Shard.ID)
		}
	}
	b.feed(Health{"west", true})
	if _, claim := writing[ownership.WriteShard](b); claim.Kind != ownership.ClaimFree {
		t.Errorf("%+v", claim)
	}
}
