package driver

import (
	"maps"
	"slices"

	"github.com/tenure-dev/tenure/shard/internal/ownership"
	"github.com/tenure-dev/tenure/shard/keyspace"
)

// health records whether a cluster can be used. It is kept for the next incarnation, since only changes are sent. The
// result of a probe of a cluster that has gone meanwhile is ignored, since no other probe would correct it.
func (d *Driver) health(e Health) {
	if _, there := d.known.Bits[e.Cluster]; !there {
		return
	}
	if d.unusable == nil {
		d.unusable = map[keyspace.ClusterName]bool{}
	}
	if e.Usable {
		delete(d.unusable, e.Cluster)
	} else {
		d.unusable[e.Cluster] = true
	}
	d.step(ownership.Health(e))
}

// feedHealth tells a new incarnation which clusters can't be used.
func (d *Driver) feedHealth() {
	for _, c := range slices.Sorted(maps.Keys(d.unusable)) {
		d.step(ownership.Health{Cluster: c})
	}
}
