package ownership

import (
	"time"

	"github.com/tenure-dev/tenure/shard/plan"
)

// A home cluster that refuses writes, or fails, isn't helped by many repeats. Each write backs off by itself, and all
// repeats of a replica share a budget: what is committed earns further ones, so a fleet that gets half of its writes
// through goes on at once, and one that gets none through asks a few times a lease. Its own lease is renewed outside of the
// budget, as often as the time that is left suggests.

// Cause says why a write wasn't committed.
type Cause uint8

const (
	// Lost: no answer came, or none that says what became of the write.
	Lost Cause = iota
	// Conflict: the record isn't what the write was based on.
	Conflict
	// Refused: the API server won't take such a write from this replica. Somebody has to change that.
	Refused
	// Overloaded: the API server has too much to do (429).
	Overloaded
	// Failed: the API server couldn't do it (5xx).
	Failed
)

func (c Cause) String() string {
	return [...]string{"no answer", "conflict", "refused", "overloaded", "server error"}[c]
}

const (
	// repeatsAtFirst is how many repeats a replica has when it begins, and repeatsAtMost how many it can save up.
	repeatsAtFirst, repeatsAtMost = 8, 64
	// repeatsEarned is how many further repeats a committed write earns.
	repeatsEarned = 2
)

// repeats is the budget of one incarnation.
type repeats struct {
	left int
	next Instant // when there is one more, though none is left
}

// take uses one up, if there is one. One is added in every tenth of a lease, though not more often than every second.
func (b *repeats) take(now Instant, cfg Config) bool {
	switch {
	case b.left > 0:
		b.left--
	case now.AtLeast(b.next) < 0:
		return false
	default:
		b.next = now.Add(max(cfg.LeaseDuration/10, time.Second))
	}
	return true
}

func (b *repeats) earn() { b.left = min(b.left+repeatsEarned, repeatsAtMost) }

// Backoff is how long a write waits before it is repeated that had no result so many times: twice as long each time, but
// no longer than a fifth of a lease, or half of one where it is refused. A replica that isn't told otherwise comes a little
// earlier than that, so that many don't come at once. What the API server asks for (Retry-After) is waited for, within
// half a lease.
func (c Config) Backoff(tries int, cause Cause, asked time.Duration) time.Duration {
	most := c.LeaseDuration / 5
	if cause == Refused {
		most = c.LeaseDuration / 2
	}
	random := 0.0
	if c.Random != nil {
		random = c.Random()
	}
	wait := float64(min(c.RetryEvery<<min(tries, 16), most)) * (1 - random/2)
	after := float64(min(asked, c.LeaseDuration/2)) * (1 + random/2)
	return time.Duration(max(wait, after))
}

// renewBackoff is Backoff for the own lease. An eighth of the time that is left is waited for at most: then a home cluster
// that refuses half of all writes leaves some twenty tries to each renewal.
func (r *Replica) renewBackoff(in Written) time.Duration {
	wait := r.cfg.Backoff(r.own.tries, in.Cause, in.After)
	r.own.tries++
	if r.Valid(r.now) {
		left := r.ValidUntil().Mono - r.now.Mono
		wait = min(wait, max(left/8, r.cfg.RetryEvery/2))
	}
	return wait
}

// wait has a write repeated later.
func (r *Replica) wait(w *write, in Written) {
	w.waits = true
	w.retryAt = r.now.Add(r.cfg.Backoff(w.tries, in.Cause, in.After))
	w.tries++
	r.waiting = append(r.waiting, w)
}

// repeat sends the writes again whose time has come, within the budget. What ends a time in which keys are unserved goes
// first, and of its like what has waited for longest.
func (r *Replica) repeat() {
	for lane := Takeovers; lane <= Others && len(r.waiting) > 0; lane++ {
		kept := r.waiting[:0]
		for _, w := range r.waiting {
			if !w.waits {
				continue // settled meanwhile
			}
			if LaneOf(w.effect) != lane || r.now.AtLeast(w.retryAt) < 0 || !r.budget.take(r.now, r.cfg) {
				kept = append(kept, w)
				continue
			}
			w.waits = false
			r.emit(w.effect)
		}
		clear(r.waiting[len(kept):])
		r.waiting = kept
	}
}

// repeatAt is when repeat is to be called next, if there is something to repeat.
func (r *Replica) repeatAt() (at time.Duration, ok bool) {
	for _, w := range r.waiting {
		if w.waits && (!ok || w.retryAt.Mono < at) {
			at, ok = w.retryAt.Mono, true
		}
	}
	if r.budget.left == 0 {
		at = max(at, r.budget.next.Mono)
	}
	return at, ok
}

// Lane tells writes apart by what waits for them. A lane's writes are on their way beside those of the others.
type Lane uint8

const (
	// Renewals of the own lease: without, nothing else matters.
	Renewals Lane = iota
	// Takeovers end a time in which keys are unserved: seals, claims, handoffs, and whose part it is to plan.
	Takeovers
	// Others: plans, records that are made, words of being warm, reports.
	Others
	// Lanes is their number.
	Lanes
)

// LaneOf returns the lane of a write.
func LaneOf(e Effect) Lane {
	switch e := e.(type) {
	case WriteLease, DropLease:
		return Renewals
	case SealLease, WriteLead:
		return Takeovers
	case WriteShard:
		if e.Kind != AnnounceWarm && e.Kind != Report {
			return Takeovers
		}
	}
	return Others
}

// Current returns what a write says by now, and whether there is anything left to write: what was about to be sent may be
// settled, and a replica that said it is warm may have dropped its caches. (Both replace one version, so at most one of
// them is committed, and the sight of it settles both.)
func (r *Replica) Current(seq uint64) (Effect, bool) {
	for _, w := range r.writes {
		if w.seq != seq {
			continue
		}
		if r.withdraws(w) {
			return nil, false
		}
		if e, ok := w.effect.(WriteShard); ok && e.Kind == AnnounceWarm && e.Shard.Warm == r.cfg.ID && w.about.shard.phase != warm {
			e.Shard.Warm = ""
			w.effect = e
		}
		return w.effect, true
	}
	return nil, false
}

// withdraws takes back a claim of a cluster that isn't reached any more. One that was sent is repeated all the same, since it
// may have been committed.
func (r *Replica) withdraws(w *write) bool {
	e, ok := w.effect.(WriteShard)
	if !ok || !e.Kind.Claims() || w.tries > 0 || r.fitness(e.Shard.ID.Cluster) == plan.Fit {
		return false
	}
	w.about.shard.w = nil
	r.forget(w)
	r.touch(w.about.shard)
	return true
}
