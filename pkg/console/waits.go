package console

import (
	"github.com/tenure-dev/tenure/shard/inspect"
	"github.com/tenure-dev/tenure/shard/protocol"
)

// hear adds what one replica reports about the cluster.
func (c *Cluster) hear(said inspect.ClusterView) {
	if inspect.Worse(said.State, protocol.ClusterClosed) < 0 &&
		(c.State == "" || inspect.Worse(said.State, c.State) < 0) {
		c.State, c.Cause = said.State, said.Cause
	}
	c.Stuck += said.Stuck
	keys, writes := said.Running+said.Ready, said.Writes+said.WaitingWrites
	if keys+writes == 0 && inspect.Worse(said.State, protocol.ClusterClosed) == 0 {
		return // only shards that aren't served
	}
	if c.Waits == nil {
		c.Waits = &inspect.ClusterView{Cluster: c.Name}
	}
	w := c.Waits
	w.State, w.Cause = c.State, c.Cause
	w.Running += said.Running
	w.Ready += said.Ready
	w.Writes += said.Writes
	w.WaitingWrites += said.WaitingWrites
	w.WaitSeconds = max(w.WaitSeconds, said.WaitSeconds)
	if said.Limits != "" {
		w.Limits = said.Limits
	}
	for _, n := range said.Namespaces {
		w.Namespaces = inspect.AddWaiting(w.Namespaces, n)
	}
	w.Namespaces = w.Namespaces[:min(len(w.Namespaces), inspect.MaxWaiting)]
}
