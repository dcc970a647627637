package shard

import (
	"cmp"
	"slices"
	"time"

	"github.com/tenure-dev/tenure/pkg/fairqueue"
	"github.com/tenure-dev/tenure/pkg/kubeconfig"
	"github.com/tenure-dev/tenure/shard/inspect"
	"github.com/tenure-dev/tenure/shard/keyspace"
)

// clusterStatus returns the status of each cluster, from its requests and from probes.
func (n *node) clusterStatus() map[keyspace.ClusterName]ClusterStatus {
	all := n.clusters.status()
	if judge := n.judge.Load(); judge != nil {
		for name, c := range all {
			judge.verdictOn(name, &c)
			all[name] = c
		}
	}
	return all
}

// say returns the report about clusters that each renewal writes into the replica's Lease.
func (n *node) say() string {
	var backlogs []fairqueue.Backlog
	if n.cfg.Backlogs != nil {
		backlogs = n.cfg.Backlogs()
	}
	backlogs = append(backlogs, n.roster.putOff(nil)...)
	return inspect.EncodeViews(viewsOf(n.clusterStatus(), n.status.Load().Stuck, backlogs, time.Now()))
}

// viewsOf combines how clusters answer with the shards of them that are stuck, and since when, and with the keys that
// wait for them. There is a backlog for each queue and cluster, and for each shard whose keys are put off.
func viewsOf(clusters map[keyspace.ClusterName]ClusterStatus, stuck map[keyspace.ShardID]time.Time,
	backlogs []fairqueue.Backlog, now time.Time) (all []inspect.ClusterView) {
	at := map[keyspace.ClusterName]int{}
	for name, c := range clusters {
		if !c.Known {
			continue
		}
		v := inspect.ClusterView{Cluster: name, State: c.State, Cause: c.Cause, Writes: c.Writes,
			WaitingWrites: c.WaitingWrites}
		if c.Limits != (kubeconfig.Limits{}) {
			v.Limits = c.Limits.String()
		}
		at[name] = len(all)
		all = append(all, v)
	}
	for id, since := range stuck {
		if i, known := at[id.Cluster]; known && now.Sub(since) >= inspect.LongStuck {
			all[i].Stuck++
			all[i].StuckSeconds = max(all[i].StuckSeconds, now.Sub(since).Seconds())
		}
	}
	for _, b := range backlogs {
		i, known := at[keyspace.ClusterName(b.Cluster)]
		if !known {
			continue
		}
		v := &all[i]
		v.Running += b.Running
		v.Ready += b.Ready
		v.WaitSeconds = max(v.WaitSeconds, b.Wait.Seconds())
		for _, w := range b.Longest {
			v.Namespaces = inspect.AddWaiting(v.Namespaces,
				inspect.Waiting{Namespace: w.Namespace, Keys: w.Ready, WaitSeconds: w.Wait.Seconds()})
		}
	}
	slices.SortFunc(all, func(a, b inspect.ClusterView) int { return cmp.Compare(a.Cluster, b.Cluster) })
	return all
}
