package ownership

import "time"

// Many repeats don't help a home cluster that refuses writes or fails. Each write backs off by itself, and all repeats
// of a replica share a budget. Committed writes earn further repeats, so a replica that gets half of its writes through
// goes on at once, and one that gets none through tries a few times per lease duration. Renewals of the own lease are
// outside the budget: their rate depends on the time that is left.

// Cause says why a write wasn't committed.
type Cause uint8

const (
	// Lost: no answer came, or none that says whether the write was committed.
	Lost Cause = iota
	// Conflict: the write was based on another version of the record.
	Conflict
	// Refused: the API server doesn't accept such a write from this replica. People have to fix that.
	Refused
	// Overloaded: the API server has too many requests (429).
	Overloaded
	// Failed: an error of the API server (5xx).
	Failed
)

func (c Cause) String() string {
	return [...]string{"no answer", "conflict", "refused", "overloaded", "server error"}[c]
}

const (
	// repeatsAtFirst is the budget of a new incarnation, and repeatsAtMost the largest one.
	repeatsAtFirst, repeatsAtMost = 8, 64
	// repeatsEarned is how many further repeats each committed write earns.
	repeatsEarned = 2
)

// repeats is the budget of one incarnation.
type repeats struct {
	left int
	next Instant // when one more is allowed although none is left
}

// take reports whether a repeat may be sent now, and charges it to the budget. An empty budget still allows one
// repeat per tenth of a lease duration, and at most one per second.
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

// Backoff returns how long a write waits before its next repeat, after tries repeats without a result. The wait
// doubles with each try, up to a fifth of the lease duration, or half of it if the write was refused. It is
// shortened at random, so that replicas don't repeat at the same time. asked is the time that the API server asked
// for (Retry-After); it is respected up to half a lease duration.
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

// renewBackoff is Backoff for the own lease. It waits for an eighth of the remaining time at most: if a home cluster
// refuses half of all writes, each renewal still has some twenty tries.
func (r *Replica) renewBackoff(in Written) time.Duration {
	wait := r.cfg.Backoff(r.own.tries, in.Cause, in.After)
	r.own.tries++
	if r.Valid(r.now) {
		left := r.ValidUntil().Mono - r.now.Mono
		wait = min(wait, max(left/8, r.cfg.RetryEvery/2))
	}
	return wait
}

// wait schedules a repeat of the write.
func (r *Replica) wait(w *write, in Written) {
	if w.cause != in.Cause {
		w.causedAt = r.now
	}
	w.cause = in.Cause
	w.retryAt = r.now.Add(r.cfg.Backoff(w.tries, in.Cause, in.After))
	w.tries++
	r.waiting = append(r.waiting, w)
	if in.Outcome == Rejected {
		r.refused(w)
	}
}

// repeat sends the writes whose time has come, within the budget. Takeovers go first, since keys are unserved until
// they are done. Within a lane, the oldest goes first.
func (r *Replica) repeat() {
	for lane := Takeovers; lane <= Others && len(r.waiting) > 0; lane++ {
		kept := r.waiting[:0]
		for _, w := range r.waiting {
			if !w.waits() {
				continue // settled since then
			}
			if LaneOf(w.effect) != lane || r.now.AtLeast(w.retryAt) < 0 || !r.budget.take(r.now, r.cfg) {
				kept = append(kept, w)
				continue
			}
			w.retryAt = Instant{}
			r.emit(w.effect)
		}
		clear(r.waiting[len(kept):])
		r.waiting = kept
	}
}

// repeatAt returns when repeat has something to do; ok is false if there is nothing to repeat.
func (r *Replica) repeatAt() (at time.Duration, ok bool) {
	for _, w := range r.waiting {
		if w.waits() && (!ok || w.retryAt.Mono < at) {
			at, ok = w.retryAt.Mono, true
		}
	}
	if r.budget.left == 0 {
		at = max(at, r.budget.next.Mono)
	}
	return at, ok
}
