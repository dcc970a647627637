package driver

import (
	"maps"
	"slices"

	"github.com/tenure-dev/tenure/shard/internal/ownership"
	"github.com/tenure-dev/tenure/shard/keyspace"
)

// Health says whether a cluster's API server can be used from here. It answers a [Probe], and is also sent when that
// changes.
type Health struct {
	Cluster keyspace.ClusterName
	Usable  bool
}

// Probe checks whether a cluster's API server can be used from here. [Health] answers it.
type Probe struct{ Cluster keyspace.ClusterName }

// Counted: how many objects a cluster has; negative where that can't be found out. It answers a [Count].
type Counted struct {
	Cluster keyspace.ClusterName
	UID     string // as the question had it
	Objects int64
}

// Count: count the objects of a cluster, and answer by a [Counted], soon and in any case.
type Count struct {
	Cluster keyspace.ClusterName
	UID     string
}

func (Health) event()  {}
func (Counted) event() {}
func (Probe) request() {}
func (Count) request() {}

// health records what is known of a cluster. It is kept for the next incarnation, since only changes are sent. A look
// that was under way when its cluster went says nothing: nobody would look again.
func (d *Driver) health(e Health) {
	if _, there := d.known.Bits[e.Cluster]; !there {
		return
	}
	if d.unusable == nil {
		d.unusable = map[keyspace.ClusterName]bool{}
	}
	if d.unusable[e.Cluster] = true; e.Usable {
		delete(d.unusable, e.Cluster)
	}
	d.step(ownership.Health{Cluster: e.Cluster, Usable: e.Usable})
}

// feedHealth tells a new incarnation which clusters can't be used.
func (d *Driver) feedHealth() {
	for _, c := range slices.Sorted(maps.Keys(d.unusable)) {
		d.step(ownership.Health{Cluster: c})
	}
}
