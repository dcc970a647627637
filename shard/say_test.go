package shard

import (
	"testing"
	"time"

	"github.com/tenure-dev/tenure/pkg/fairqueue"
	"github.com/tenure-dev/tenure/pkg/kubeconfig"
	"github.com/tenure-dev/tenure/shard/inspect"
	"github.com/tenure-dev/tenure/shard/keyspace"
	"github.com/tenure-dev/tenure/test/expect"
)

func TestViewsJoinAnswersAndBacklogs(t *testing.T) {
	now, halves := time.Now(), keyspace.Partition(1)
	got := viewsOf(map[keyspace.ClusterName]ClusterStatus{
		"west": {Known: true, State: "open", Cause: "throttling", Writes: 2, WaitingWrites: 3,
			Limits: kubeconfig.Limits{Writes: 2}},
		"east": {Known: true, State: "closed"},
		"gone": {State: "open"},
	}, map[keyspace.ShardID]time.Time{
		{Cluster: "west", Prefix: halves[0]}: now.Add(-11 * time.Second),
		{Cluster: "west", Prefix: halves[1]}: now.Add(-12 * time.Second),
		{Cluster: "east", Prefix: halves[0]}: now.Add(-9 * time.Second), // caches are still being filled
		{Cluster: "gone", Prefix: halves[0]}: now.Add(-time.Hour),
	}, []fairqueue.Backlog{
		{Cluster: "west", Ready: 5, Running: 2, Wait: time.Second,
			Longest: []fairqueue.Waiting{{Namespace: "shop", Ready: 5, Wait: time.Second}}},
		{Cluster: "west", Ready: 1, Running: 1, Wait: 2 * time.Second,
			Longest: []fairqueue.Waiting{{Namespace: "bank", Ready: 1, Wait: 2 * time.Second}}},
		{Cluster: "gone", Ready: 7}, {Cluster: "local", Ready: 1},
	}, now)
	want := []inspect.ClusterView{
		{Cluster: "east", State: "closed"},
		{Cluster: "west", State: "open", Cause: "throttling", Stuck: 2, StuckSeconds: 12, Running: 3, Ready: 6,
			Writes: 2, WaitingWrites: 3, Limits: "2 writes at a time", WaitSeconds: 2,
			Namespaces: []inspect.Waiting{{Namespace: "bank", Keys: 1, WaitSeconds: 2},
				{Namespace: "shop", Keys: 5, WaitSeconds: 1}}},
	}
	expect.Equal(t, "the views", want, got)
}
