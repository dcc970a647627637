package record

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tenure-dev/tenure/bench/load/feed"
	"github.com/tenure-dev/tenure/test/lab"
)

// Span is a time in which a shard had one holder.
type Span struct {
	Shard  string `json:"shard"`
	Holder string `json:"holder"`
	Epoch  int64  `json:"epoch"`
	// From and To are seconds since the start of the load; negative is before it.
	From float64 `json:"from"`
	To   float64 `json:"to"`
}

// Timeline follows the Shard records. It is safe for concurrent use.
type Timeline struct {
	mu     sync.Mutex // guards all below
	shards map[string][]tenure
	state  map[string]feed.Object
}

type tenure struct {
	holder string
	epoch  int64
	since  time.Time
}

// NewTimeline makes an empty one.
func NewTimeline() *Timeline {
	return &Timeline{shards: map[string][]tenure{}, state: map[string]feed.Object{}}
}

// Record takes a change of a Shard record.
func (t *Timeline) Record(e feed.Event) {
	if e.Object.Spec.Layout != nil {
		return
	}
	name := e.Object.Spec.Cluster + "/" + e.Object.Spec.Prefix
	t.mu.Lock()
	defer t.mu.Unlock()
	if e.Type == "DELETED" {
		delete(t.state, name)
		return
	}
	t.state[name] = e.Object
	list := t.shards[name]
	status := e.Object.Status
	if n := len(list); status.Holder == "" || n > 0 && list[n-1].epoch == status.Epoch {
		return
	}
	t.shards[name] = append(list, tenure{status.Holder, status.Epoch, e.At})
}

// Settled reports whether there are at least so many shards, and each has a holder, which is its assignee if it has
// one.
func (t *Timeline) Settled(shards int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.state) < shards {
		return false
	}
	for _, s := range t.state {
		if s.Status.Holder == "" || s.Spec.Assignee != "" && s.Spec.Assignee != s.Status.Holder {
			return false
		}
	}
	return true
}

// Held is how many shards each incarnation holds.
func (t *Timeline) Held() map[string]int {
	t.mu.Lock()
	defer t.mu.Unlock()
	held := map[string]int{}
	for _, s := range t.state {
		held[s.Status.Holder]++
	}
	return held
}

// HeldAnew reports whether an incarnation of the replica that isn't in before holds a shard.
func (t *Timeline) HeldAnew(replica string, before map[string]int) bool {
	for incarnation := range t.Held() {
		if _, old := before[incarnation]; !old && lab.ReplicaOf(incarnation) == replica {
			return true
		}
	}
	return false
}

// HeldAt lists the shards that a replica held at a time. A change that the watch shows within 100 ms after that
// time counts as made before it.
func (t *Timeline) HeldAt(replica string, at time.Time) []string {
	const instant = 100 * time.Millisecond
	t.mu.Lock()
	defer t.mu.Unlock()
	var shards []string
	for shard, list := range t.shards {
		holder := ""
		for _, tenure := range list {
			if tenure.since.Before(at.Add(instant)) {
				holder = tenure.holder
			}
		}
		if lab.ReplicaOf(holder) == replica {
			shards = append(shards, shard)
		}
	}
	slices.Sort(shards)
	return shards
}

// Spans returns who held what when until the end of a load, sorted by shard and time.
func (t *Timeline) Spans(start, end time.Time) []Span {
	t.mu.Lock()
	defer t.mu.Unlock()
	spans := []Span{}
	for shard, list := range t.shards {
		for i, tenure := range list {
			to := end
			if i+1 < len(list) && list[i+1].since.Before(end) {
				to = list[i+1].since
			}
			if !tenure.since.Before(end) {
				break // what came after the load
			}
			spans = append(spans, Span{
				Shard: shard, Holder: lab.ReplicaOf(tenure.holder), Epoch: tenure.epoch,
				From: tenure.since.Sub(start).Seconds(), To: to.Sub(start).Seconds(),
			})
		}
	}
	slices.SortFunc(spans, func(a, b Span) int {
		return cmp.Or(strings.Compare(a.Shard, b.Shard), cmp.Compare(a.Epoch, b.Epoch))
	})
	return spans
}
