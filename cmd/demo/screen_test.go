package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/shard/protocol"
	"github.com/tenure-dev/tenure/test/expect"
)

func midway() snapshot {
	return snapshot{
		elapsed: 73 * time.Second, headline: "r2 was killed", ats: 600, deployments: 12, replicated: 4, shards: 16,
		held: 11,
		replicas: []replicaView{
			{name: "r1", state: alive, shards: 6, figures: figures{queue: 12, reconciled: 1581}, asked: true},
			{name: "r2", state: killed, shards: 5, figures: figures{queue: 3, reconciled: 978}, asked: true},
			{name: "r4", state: starting},
		},
		clusters: []clusterView{
			{name: "west", pending: 100, running: 20, done: 180, copies: 12},
			{name: "east", pending: 90, running: 10, done: 200, frozen: true},
		},
		handoffs: []handoff{
			{Shard: "west/010", Kind: protocol.Crash, From: "r2-qr2lzw", To: "r1-yrhuuz", Epoch: 2, GapMS: new(4373.2)},
			{Shard: "east/111", Kind: protocol.Planned, From: "r1-yrhuuz", To: "r4-qogtbb", Epoch: 3, GapMS: new(11.0)},
			{Shard: "east/110", Kind: protocol.Planned, From: "r1-yrhuuz", To: "r4-qogtbb", Epoch: 3},
		},
	}
}

func TestScreenShowsTheWholeBoard(t *testing.T) {
	want := strings.TrimPrefix(`
tenure demo  01:13  380 of 600 Ats DONE  [###############.........]
  r2 was killed

  REPLICA  STATE          SHARDS      QUEUE RECONCILED
  r1       alive               6         12       1581
  r2       killed              5          -        978
  r4       starting            0          -          -

  CLUSTER  STATE         PENDING    RUNNING       DONE     COPIES
  west                       100         20        180         12
  east     frozen             90         10        200          0
  all                        190         30        380         12

LAST HANDOFFS  (3 so far, 11 of 16 shards held)
  west/010   Crash    r2-qr2lzw -> r1-yrhuuz  epoch 2  gap 4.37 s
  east/111   Planned  r1-yrhuuz -> r4-qogtbb  epoch 3  gap 11.0 ms
  east/110   Planned  r1-yrhuuz -> r4-qogtbb  epoch 3  ...`, "\n")
	expect.Equal(t, "screen", want, strings.Join(screen(midway(), 80, 24), "\n"))
}

func TestScreenNeverWrapsOrScrolls(t *testing.T) {
	s := midway()
	for range 30 {
		s.handoffs = append(s.handoffs, s.handoffs[0])
		s.replicas = append(s.replicas, replicaView{name: "another", state: alive})
	}
	for _, size := range [][2]int{{80, 24}, {40, 10}, {20, 1}, {200, 60}} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			lines := screen(s, size[0], size[1])
			if len(lines) >= size[1] && len(lines) > 0 {
				t.Errorf("%d lines on %d rows: the last line feed would scroll", len(lines), size[1])
			}
			for _, line := range lines {
				if len([]rune(line)) > size[0] {
					t.Errorf("line of %d characters in %d columns: %q", len([]rune(line)), size[0], line)
				}
			}
		})
	}
}

func TestScreenShowsTheLatestHandoffs(t *testing.T) {
	s := midway()
	for range 30 {
		s.handoffs = append(s.handoffs, handoff{Shard: "west/000", Kind: protocol.Planned})
	}
	s.handoffs = append(s.handoffs, handoff{Shard: "west/last", Kind: protocol.Planned})
	lines := screen(s, 80, 24)
	if last := lines[len(lines)-1]; !strings.Contains(last, "west/last") {
		t.Errorf("last line %q, want the latest handoff", last)
	}
}

func TestPlainLineTellsOrphansAndQueues(t *testing.T) {
	want := "01:13  Ats 190 pending 30 running 380 done | shards  r1 6 (queue 12)  r2 killed (5 orphaned)  r4 0 | " +
		"handoffs 3 | Deployments 4 of 12 replicated"
	expect.Equal(t, "line", want, plainLine(midway()))
}

func TestRedrawGoesBackOverWhatWasDrawn(t *testing.T) {
	if got, want := redraw([]string{"a", "b"}, 0), "\r\x1b[Ka\n\x1b[Kb\n\x1b[J"; got != want {
		t.Errorf("first drawing %q, want %q", got, want)
	}
	if got, want := redraw([]string{"c"}, 2), "\x1b[2A\r\x1b[Kc\n\x1b[J"; got != want {
		t.Errorf("second drawing %q, want %q", got, want)
	}
}

func TestSettledNeedsAllShardsAndEvenShares(t *testing.T) {
	fleet := func(held int, shares ...int) snapshot {
		s := snapshot{shards: 16, held: held}
		for _, n := range shares {
			s.replicas = append(s.replicas, replicaView{state: alive, shards: n})
		}
		s.replicas = append(s.replicas, replicaView{state: killed})
		return s
	}
	for _, c := range []struct {
		name string
		in   snapshot
		want bool
	}{
		{"even and complete", fleet(16, 6, 5, 5), true},
		{"a shard without a live holder", fleet(15, 5, 5, 5), false},
		{"a replica that joined and has nothing yet", fleet(16, 8, 8, 0), false},
		{"no shards yet", snapshot{}, false},
		{"a cluster that isn't known yet", snapshot{wanted: 24, shards: 16, held: 16}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := c.in.settled(); got != c.want {
				t.Errorf("settled = %v, want %v", got, c.want)
			}
		})
	}
}
