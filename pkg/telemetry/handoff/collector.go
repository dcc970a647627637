package handoff

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tenure-dev/tenure/shard"
	"github.com/tenure-dev/tenure/shard/inspect"
	"github.com/tenure-dev/tenure/shard/keyspace"
	"github.com/tenure-dev/tenure/shard/protocol"
)

// maxShards is how many of its shards a replica names in its metrics.
const maxShards = 1024

// Collector makes metrics of a replica's status.
type Collector struct {
	status func() shard.Status
	now    func() time.Time
	descs  map[string]*prometheus.Desc
}

// NewCollector returns a Collector of what the function status returns.
func NewCollector(status func() shard.Status) *Collector {
	c := &Collector{status: status, now: time.Now, descs: map[string]*prometheus.Desc{}}
	for _, m := range []struct {
		name, help string
		labels     []string
	}{
		{"tenure_coordinator", "1 while this replica is the coordinator.", nil},
		{"tenure_member", "1 while this replica's lease is valid.", nil},
		{"tenure_memory_needed_ratio",
			"What this replica needs of its memory, over its limit (GOMEMLIMIT): live objects and what isn't heap. 0 where " +
				"there is no limit.", nil},
		{"tenure_shards_served", "Shards that this replica holds and serves.", nil},
		{"tenure_shards_warming", "Shards that this replica prepares to take over, or holds without serving them: not yet, " +
			"or because it is handing them off.", nil},
		{"tenure_shard_epoch", "Epoch of a shard that this replica holds or warms.", []string{"shard"}},
		{"tenure_shard_phase", "Phase of a shard at this replica: always 1, with the phase as a label.",
			[]string{"shard", "phase"}},
		{"tenure_shard_objects", "Objects of the primary kinds in this replica's cache of a shard that it holds: " +
			"finished Ats aren't counted.", []string{"shard"}},
		{"tenure_shard_load", "Reconciles of a shard that run at the same time, on average over about a lease duration.",
			[]string{"shard"}},
		{"tenure_shards_without_holder", "Shards that no live replica holds or that have no record, of the clusters " +
			"that this replica knows. A cluster's second name doesn't count, nor does a name that another cluster had " +
			"until its new layout is made.", nil},
		{"tenure_shard_without_holder_seconds", "For how long the shard that has waited longest for a live holder has had " +
			"none, as this replica sees it; 0 while each shard has one.", nil},
		{"tenure_shard_held_not_served_seconds", "Age of the oldest problem by cluster: this replica holds a shard and " +
			"can't serve it, or no longer sees its changes. Absent without one.", []string{"cluster"}},
		{"tenure_odd_records", "Shard records with something wrong, by reason (ForeignRecord, UnreadableRecord, " +
			"OverlappingRecords, SpentRecord), as this replica sees them.", []string{"reason"}},
		{"tenure_deleted_records_total", "Records that this replica saw to be deleted, which replicas never do.", nil},
		{"tenure_clusters_aliased", "Names of clusters that are served under another name.", nil},
		{"tenure_shards_moving", "Shards that are to go to another holder and haven't yet.", nil},
		{"tenure_shard_moving_seconds", "Age of the oldest unfinished move, as this replica sees it; 0 without any.", nil},
		{"tenure_clusters_known", "Workload clusters that this replica knows, whether it can use them or not.", nil},
		{"tenure_watch_mode", "Who filters the watches of a cluster, server or client: always 1, with the mode as a label.",
			[]string{"cluster", "mode"}},
		{"tenure_watch_bytes_total", "Decompressed bytes of answers to reads and watches from a cluster.",
			[]string{"cluster"}},
		{"tenure_watch_objects_kept_total", "Objects and events of a cluster that belonged to the shard that asked.",
			[]string{"cluster"}},
		{"tenure_watch_objects_discarded_total", "Objects and events of a cluster that arrived and belonged to another " +
			"shard.", []string{"cluster"}},
		{"tenure_fenced_writes_total",
			"Writes that were refused before they were sent, because their shard wasn't held any " +
				"more.", []string{"cluster"}},
		{"tenure_unanswered_writes_total", "Writes that were sent to a cluster and got no answer that says what became of " +
			"them.", []string{"cluster"}},
		{"tenure_cluster_credentials_expiry_timestamp_seconds",
			"When the credentials in use for a cluster expire, in seconds since 1970: the end of the client certificate or of " +
				"the token, where they have one.", []string{"cluster"}},
		{"tenure_cluster_state",
			"How a cluster answers this replica's requests: always 1, with the state (closed, limited, " +
				"open, half-open) and what it is for as labels.", []string{"cluster", "state", "cause"}},
		{"tenure_cluster_writes", "Writes to a cluster that this replica has sent and that aren't answered yet (sent), or " +
			"that wait for their turn by its limits (waiting).", []string{"cluster", "state"}},
		{"tenure_cluster_limit", "What this replica may ask of a cluster: requests a second (qps), at once after a rest " +
			"(burst), writes at a time (writes). Absent where there is no limit.", []string{"cluster", "limit"}},
		{"tenure_abandoned_reconciles", "Reconciles that run on although their context has ended; their writes are refused.",
			[]string{"cluster"}},
	} {
		c.descs[m.name] = prometheus.NewDesc(m.name, m.help, m.labels, nil)
	}
	return c
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	st, now := c.status(), c.now()
	gauge := c.gauge(ch)
	gauge("tenure_coordinator", one(st.Coordinator))
	gauge("tenure_member", one(st.Member))
	gauge("tenure_memory_needed_ratio", st.MemoryNeeded)
	served := 0
	for _, s := range st.Shards {
		if s.Served() {
			served++
		}
	}
	gauge("tenure_shards_served", float64(served))
	gauge("tenure_shards_warming", float64(len(st.Shards)-served))
	for _, s := range st.Shards[:min(len(st.Shards), maxShards)] {
		name := s.ID.String()
		gauge("tenure_shard_epoch", float64(s.Epoch), name)
		gauge("tenure_shard_phase", 1, name, s.Phase)
		gauge("tenure_shard_objects", float64(s.Objects), name)
		gauge("tenure_shard_load", s.Load, name)
	}
	gauge("tenure_shards_without_holder", float64(len(st.WithoutHolder)))
	gauge("tenure_shard_without_holder_seconds", longest(st.WithoutHolder, now).Seconds())
	odd := map[string]int{}
	for _, o := range st.Odd {
		odd[o.Reason]++
	}
	for _, reason := range []string{inspect.Unreadable, inspect.Foreign, inspect.Overlapping, inspect.Spent} {
		gauge("tenure_odd_records", float64(odd[reason]), reason)
	}
	ch <- prometheus.MustNewConstMetric(c.descs["tenure_deleted_records_total"], prometheus.CounterValue, float64(st.Lost))
	gauge("tenure_clusters_aliased", float64(len(st.Aliases)))
	gauge("tenure_shards_moving", float64(len(st.Moving)))
	gauge("tenure_shard_moving_seconds", longest(st.Moving, now).Seconds())
	stuck := map[string]float64{}
	for id, began := range st.Stuck {
		stuck[string(id.Cluster)] = max(stuck[string(id.Cluster)], now.Sub(began).Seconds())
	}
	for cluster, age := range stuck {
		gauge("tenure_shard_held_not_served_seconds", age, cluster)
	}
	c.clusters(ch, st)
}

// gauge returns what sends a gauge's value.
func (c *Collector) gauge(ch chan<- prometheus.Metric) func(name string, value float64, labels ...string) {
	return func(name string, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(c.descs[name], prometheus.GaugeValue, value, labels...)
	}
}

func (c *Collector) clusters(ch chan<- prometheus.Metric, st shard.Status) {
	count := func(name string, value uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(c.descs[name], prometheus.CounterValue, float64(value), labels...)
	}
	gauge := c.gauge(ch)
	known := 0
	for name, cl := range st.Clusters {
		cluster := string(name)
		if cl.Known {
			known++
			if end := cl.CredentialsExpire; !end.IsZero() {
				gauge("tenure_cluster_credentials_expiry_timestamp_seconds", float64(end.Unix()), cluster)
			}
			if l := cl.Limits; l.QPS > 0 {
				gauge("tenure_cluster_limit", l.QPS, cluster, "qps")
				gauge("tenure_cluster_limit", float64(l.Bucket()), cluster, "burst")
			}
			if n := cl.Limits.Writes; n > 0 {
				gauge("tenure_cluster_limit", float64(n), cluster, "writes")
			}
		}
		count("tenure_watch_bytes_total", cl.ListWatchBytes, cluster)
		count("tenure_watch_objects_kept_total", cl.Kept, cluster)
		count("tenure_watch_objects_discarded_total", cl.Discarded, cluster)
		if !concerned(cl) {
			continue
		}
		if cl.Known {
			gauge("tenure_watch_mode", 1, cluster, cl.WatchMode)
			gauge("tenure_cluster_state", 1, cluster, string(cl.State), cl.Cause)
			gauge("tenure_cluster_writes", float64(cl.Writes), cluster, "sent")
			gauge("tenure_cluster_writes", float64(cl.WaitingWrites), cluster, "waiting")
		}
		count("tenure_fenced_writes_total", cl.FencedWrites, cluster)
		count("tenure_unanswered_writes_total", cl.UnansweredWrites, cluster)
		gauge("tenure_abandoned_reconciles", float64(cl.Abandoned), cluster)
	}
	gauge("tenure_clusters_known", float64(known))
}

// concerned reports whether the replica has had anything to do with a cluster, but for probes that were answered. Most
// replicas have nothing to do with most clusters, and series that say so would grow with their product. Counters of
// bytes and objects begin before that, so that rates show the first lists.
func concerned(c shard.ClusterStatus) bool {
	return c.ListWatchBytes > 0 || c.Kept > 0 || c.Discarded > 0 || c.FencedWrites > 0 || c.UnansweredWrites > 0 ||
		c.Abandoned > 0 || c.Writes > 0 || c.WaitingWrites > 0 || c.State != protocol.ClusterClosed
}

func one(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// longest is the age of the oldest entry.
func longest(since map[keyspace.ShardID]time.Time, now time.Time) time.Duration {
	var age time.Duration
	for _, t := range since {
		age = max(age, now.Sub(t))
	}
	return age
}
