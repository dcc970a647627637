package shardtest

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/test/must"
)

// If faults without effect counted, TestSim could say of a kind that it happened, and none had ever done anything. C
// doesn't run.
func TestAFaultCountsOnlyOnceItHasHadAnEffect(t *testing.T) {
	seen := ""
	for _, c := range []struct{ story, want string }{
		{"crash c", ""},
		{"crash b", "crash 1"},
		{"pause c 5s; run 9s", ""},
		{"pause b 5s; run 9s", "pause 1"},
		{"sleep c 5s; run 9s", ""},
		{"sleep b 5s; run 9s", "sleep 1"},
		{"jump c 1s", ""},
		{"jump b 1s", "jump 1"},
		{"cut c 5s; run 9s", ""},
		{"cut b 1ms; run 9s", ""},
		{"cut b 9s; run 9s", "cut 1"},
		{"cut b 9s requests; run 9s", "cut 1"},
		{"cut b 9s answers; run 9s", "cut 1"},
		{"freeze c shards 9s; foreign-shard west/0 relist; run 9s", "foreign-shard 1"},
		{"freeze b shards 9s; run 9s", ""},
		{"freeze b shards 9s; foreign-shard west/0 relist; run 9s", "freeze 1, foreign-shard 1"},
		{"deaf c 9s requests; run 9s", ""},
		{"deaf b 9s requests; run 9s", "deaf 1"},
		{"deaf b 9s; run 9s", "deaf 1"},
		{"home-away 1ms; run 9s", ""},
		{"home-away 4s; run 9s", "home-away 1"},
		{"exit c; run 9s", ""},
		{"exit b; run 1ms; exit b; run 9s", "exit 1"},
		{"cut b 4s; lose-request b lease; run 4s", "cut 1"},
		{"lose-request b lease; run 4s", "lose-request 1"},
		{"cut b 4s; lose-reply b lease; run 4s", "cut 1"},
		{"lose-reply b lease; run 4s", "lose-reply 1"},
		{"cut b 9s; late b lease 1s; run 9s", "cut 1"},
		{"late b lease 1s; run 9s", "late 1"},
		{"cut b 4s; repeat b lease 1s; run 4s", "cut 1"},
		{"repeat b lease 1s; run 4s", "repeat 1"},
		{"cut b 4s; refuse b lease; run 4s", "cut 1"},
		{"refuse b lease; run 4s", "refuse 1"},
		{"cut b 4s; read-fails b lease; run 1s", ""},
		{"read-fails b lease; run 4s", "read-fails 1"},
		{"slow-warm b 1s; run 9s", ""},
		{"slow-warm b 1s; crash a; run 30s", "crash 1, slow-warm 1"},
		{"slow-drain b 1s; run 9s", ""},
		{"slow-drain b 1s; exit b; run 9s", "exit 1, slow-drain 1"},
		{"delete-lease c", ""},
		{"delete-lease b", "delete-lease 1"},
		{"delete-shard west/00", ""},
		{"delete-shard west/0", "delete-shard 1"},
		{"replace-shard west/00", ""},
		{"replace-shard west/0", "replace-shard 1"},
		{"remove-cluster west 1us; run 9s", ""},
		{"remove-cluster west 5s; run 9s", "remove-cluster 1"},
		{"pin b west/0; pin b west/0", "pin 1"},
		{"load west/00 5s", ""},
		{"load west/0 5s", "load 1"},
		{"crash a; crash-leader", "crash 1"},
		{"crash-leader", "crash-leader 1"},
		{"misreport c gone", ""},
		{"misreport b gone", "misreport 1"},
		{"misreport c neighbour", "misreport 1"},
		{"misreport a earlier", "misreport 1"},
		{"unreach c west 9s; run 9s", ""},
		{"unreach b west 9s; run 9s", "unreach 1"},
		{"hang-warm b west 9s; run 30s", ""},
		{"hang-warm b west 30s; crash a; run 30s", "crash 1, hang-warm 1"},
		{"slow-home 1ms; run 9s", ""},
		{"slow-home 9s; run 9s", "slow-home 1"},
		{"refusing 1ms; run 9s", ""},
		{"refusing 9s; run 9s", "refusing 1"},
		{"rebuild; rebuild", "rebuild 1"},
		{"lose-leases; lose-leases", "lose-leases 1"},
		{"lose-records; lose-records", "lose-records 1"},
		{"foreign-shard west/0", ""},
		{"foreign-shard west/0 relist", "foreign-shard 1"},
		{"delete-layout west; delete-layout west", "delete-layout 1"},
		{"delete-layout west; replace-layout west", "delete-layout 1"},
		{"replace-layout west", "replace-layout 1"},
		{"delete-layout west; edit-layout west", "delete-layout 1"},
		{"edit-layout west", "edit-layout 1"},
		{"remove-cluster west 5s; run 2s; remake-cluster west; run 9s", "remove-cluster 1"},
		{"remake-cluster west; run 9s", "remake-cluster 1"},
		{"exchange west; run 9s", ""},
		{"clusters west:1 north:0; run 9s; exchange north; run 9s", "exchange 1"},
		{"upgrade b 1s; run 9s", ""},
		{"upgrade b 1s requests; run 9s", "upgrade 1"},
	} {
		w := &world{script: true, out: io.Discard}
		w.reset(Schedule{Nodes: 4, Faulty: 1 << 60, Lag: 10 * time.Millisecond})
		for command := range strings.SplitSeq("clusters west:1; start a; run 1s; start b; run 5.5s; "+c.story, "; ") {
			must.Succeed(t, w.obey(strings.Fields(command)))
		}
		var got []string
		for k := range faultKinds {
			if n := w.Faults[k]; n > 0 {
				got = append(got, fmt.Sprint(k, " ", n))
			}
		}
		if got := strings.Join(got, ", "); got != c.want {
			t.Errorf("%q counts as %q, want %q", c.story, got, c.want)
		}
		seen += c.want
	}
	for k := range faultKinds {
		if k != Restore && !strings.Contains(seen, k.String()+" ") { // a story saves nothing to restore
			t.Errorf("no story has a %v", k)
		}
	}
}
