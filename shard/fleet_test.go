package shard

import (
	"context"
	"fmt"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/tenure-dev/tenure/shard/keyspace"
)

func TestClustersThatComeAndGoLeaveLittleBehind(t *testing.T) {
	f := newFleet()
	var some struct{ cluster.Cluster }
	stay, leave := context.WithCancel(t.Context())
	defer leave()
	f.add(stay, "west", some)
	_, west := f.get("west")
	west.Kept.Add(7)
	for i := range 100_000 {
		name := keyspace.ClusterName(fmt.Sprint("cluster-", i))
		ctx, end := context.WithCancel(stay)
		f.add(ctx, name, some)
		_, traffic := f.get(name)
		traffic.Kept.Add(1)
		f.remove(name, f.last)
		end()
		if i%1000 == 0 { // a connection that is replaced
			f.remove("west", f.clusters["west"].number)
			f.add(stay, "west", some)
		}
		if n := len(f.status()); n > maxGone+2 {
			t.Fatalf("after %d clusters that came and went, %d are remembered", i+1, n)
		}
	}
	if got := f.status()["west"]; got.Kept != 7 || !got.Engaged {
		t.Errorf("the cluster that stayed: %+v", got)
	}
}
