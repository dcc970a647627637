package faultproxy

import (
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// Injection is one rule in force.
type Injection struct {
	Rule  Rule
	rules *rules
	ended chan struct{}
	timer *time.Timer // nil if the rule doesn't end by itself

	// rules.mu guards what follows.
	hits int
	over bool
}

// End takes the rule out of force; what it held back is let go. Further calls do nothing.
func (i *Injection) End() {
	i.rules.mu.Lock()
	defer i.rules.mu.Unlock()
	i.rules.end(i)
}

// Hits is how many requests suffered the fault, open watches included.
func (i *Injection) Hits() int {
	i.rules.mu.Lock()
	defer i.rules.mu.Unlock()
	return i.hits
}

// rules is the set of those in force.
type rules struct {
	mu      sync.Mutex // guards all below; held for a few instructions only
	rand    *rand.Rand
	active  []*Injection
	changed chan struct{} // closed and replaced when the set changes
}

func newRules(seed uint64) *rules {
	return &rules{rand: rand.New(rand.NewPCG(seed, 1)), changed: make(chan struct{})}
}

func (rs *rules) inject(rule Rule) *Injection {
	i := &Injection{Rule: rule, rules: rs, ended: make(chan struct{})}
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.active = append(rs.active, i)
	rs.tell()
	if rule.For > 0 {
		i.timer = time.AfterFunc(rule.For, i.End)
	}
	return i
}

// end is End with the lock held.
func (rs *rules) end(i *Injection) {
	if i.over {
		return
	}
	i.over = true
	close(i.ended)
	if i.timer != nil {
		i.timer.Stop()
	}
	rs.active = slices.DeleteFunc(rs.active, func(other *Injection) bool { return other == i })
	rs.tell()
}

func (rs *rules) tell() {
	close(rs.changed)
	rs.changed = make(chan struct{})
}

func (rs *rules) endAll() {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for len(rs.active) > 0 {
		rs.end(rs.active[0])
	}
}

// of returns the first rule that befalls a new request, nil if none does. Rules on watches that are open (holds) are
// looked up by [rules.held], piece by piece.
func (rs *rules) of(r request) *Injection {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for _, i := range rs.active {
		if i.Rule.onlyWatches() && r.verb != "watch" || !i.Rule.Match.picks(r) {
			continue
		}
		if i.Rule.Fault == FreezeWatch || i.Rule.Fault == DelayWatch {
			continue
		}
		if p := i.Rule.Probability; p > 0 && rs.rand.Float64() >= p {
			continue
		}
		rs.hit(i)
		return i
	}
	return nil
}

// held returns the rule that befalls the open answer of a request now, and a channel that closes when that may change.
func (rs *rules) held(r request) (*Injection, <-chan struct{}) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for _, i := range rs.active {
		if !i.Rule.Fault.holds() || (i.Rule.onlyWatches() && r.verb != "watch") || !i.Rule.Match.picks(r) {
			continue
		}
		return i, rs.changed
	}
	return nil, rs.changed
}

// suffers counts an open answer that a rule holds something of back, or cuts. seen are the rules that were counted for
// this answer.
func (rs *rules) suffers(i *Injection, seen map[*Injection]bool) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if !seen[i] {
		seen[i] = true
		rs.hit(i)
	}
}

// hit counts a request that suffers the fault. The lock must be held. A rule that has reached its limit ends.
func (rs *rules) hit(i *Injection) {
	i.hits++
	if i.Rule.Limit > 0 && i.hits >= i.Rule.Limit {
		rs.end(i)
	}
}

func (r Rule) onlyWatches() bool {
	return r.Fault == FreezeWatch || r.Fault == DelayWatch || r.Fault == CutWatch
}
