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

// Counted: a cluster has this many objects, or a negative number if they couldn't be counted. It answers a [Count].
type Counted struct {
	Cluster keyspace.ClusterName
	UID     string // from the Count that it answers
	Objects int64
}

// Count: count the objects of a cluster. A [Counted] must answer it soon, even if counting fails.
type Count struct {
	Cluster keyspace.ClusterName
	UID     string
}

func (Health) event()  {}
func (Counted) event() {}
func (Probe) request() {}
func (Count) request() {}

// health records whether a cluster can be used. It is kept for the next incarnation, since only changes are sent. The
// result of a probe of a cluster that has gone meanwhile is ignored, since no other probe would correct it.
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
