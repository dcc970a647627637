package at

import (
	"maps"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	cnatv1alpha1 "github.com/tenure-dev/tenure/pkg/apis/cnat/v1alpha1"
)

// noteLife is how long an unused note is kept. It only bounds memory: without the note a claim is renewed, which costs
// one write.
const noteLife = 10 * time.Minute

// maxNotes bounds the notes, at some 16 MiB. Beyond it, arbitrary other notes are dropped.
const maxNotes = 1 << 16

// maxBegun bounds how many Ats are remembered as started, at some 2 MiB; noteLife bounds how long.
const maxBegun = 1 << 14

// claimID distinguishes one claim of an At from every other. Each claim is a compare-and-swap that sets the start time
// and the count, so no two are alike.
type claimID struct {
	start    metav1.MicroTime
	restarts int32
}

func claimOf(status *cnatv1alpha1.AtStatus) claimID {
	id := claimID{restarts: status.Restarts}
	if status.StartTime != nil {
		id.start = *status.StartTime
	}
	return id
}

func (id claimID) equal(other claimID) bool {
	return id.restarts == other.restarts && id.start.Time.Equal(other.start.Time)
}

// note is what is remembered about one At.
type note struct {
	// what is known about the Pod under claim
	what  noteKind
	claim claimID
	// replaced is the resourceVersion that our last write replaced. A cache that still shows it lags behind that write.
	replaced string
	// awaited reports whether a reconcile met such a cache and waits for the event.
	awaited bool
	since   time.Time
}

// notes remembers, by UID, what this process itself did last.
type notes struct {
	mu sync.Mutex
	// All below is guarded by mu.
	byUID map[types.UID]note
	// begun is when this process started each At, which may be DONE by now. An At is started once, unless its cluster
	// is restored to an earlier state.
	begun map[types.UID]time.Time
	swept time.Time
}

// recall returns what is known about the claim in the At's status.
func (n *notes) recall(at *cnatv1alpha1.At, now time.Time) noteKind {
	n.mu.Lock()
	defer n.mu.Unlock()
	known := n.byUID[at.UID]
	switch {
	case !known.claim.equal(claimOf(&at.Status)):
		return noteNone
	case known.what == noteMade && now.Sub(known.since) >= cacheGrace:
		return noteUnsure
	}
	return known.what
}

// behind reports whether the At that a cache shows is certainly older than our last write to it. After cacheGrace it
// returns false: a write from the old resourceVersion would only conflict. If a second read of the cache gives the same
// answer, the caller may wait for the event of that write: after the first call, [claimed] doesn't suppress that event.
func (n *notes) behind(at *cnatv1alpha1.At, now time.Time) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	known, found := n.byUID[at.UID]
	if !found || known.replaced != at.ResourceVersion || now.Sub(known.since) >= cacheGrace {
		return false
	}
	known.awaited = true
	n.byUID[at.UID] = known
	return true
}

// claimed reports whether the claim in an At's status is our own, and no reconcile waits for its event.
func (n *notes) claimed(at *cnatv1alpha1.At) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	known, found := n.byUID[at.UID]
	return found && !known.awaited && known.claim.equal(claimOf(&at.Status))
}

// claims records a claim that we hold or are about to write, and what is known about the Pod under it.
func (n *notes) claims(uid types.UID, claim claimID, what noteKind, now time.Time) {
	n.change(uid, now, func(known *note) { known.claim, known.what = claim, what })
}

// begins records that an At was started, and reports whether this process had started it before.
func (n *notes) begins(uid types.UID, now time.Time) (again bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, again = n.begun[uid]
	n.begun[uid] = now
	bound(n.begun, maxBegun, uid)
	return again
}

// unsure records that a Pod may have been made under the claim that we hold.
func (n *notes) unsure(uid types.UID, now time.Time) {
	n.change(uid, now, func(known *note) { known.what = noteUnsure })
}

// wrote records that we replaced a resourceVersion.
func (n *notes) wrote(uid types.UID, replaced string, now time.Time) {
	n.change(uid, now, func(known *note) { known.replaced, known.awaited = replaced, false })
}

func (n *notes) forget(uid types.UID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.byUID, uid)
}

func (n *notes) change(uid types.UID, now time.Time, set func(*note)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	known := n.byUID[uid]
	set(&known)
	known.since = now
	n.byUID[uid] = known
	n.sweep(now)
	bound(n.byUID, maxNotes, uid)
}

// bound drops arbitrary entries, but never that of except, until no more than most are left.
func bound[K comparable, V any](entries map[K]V, most int, except K) {
	for key := range entries {
		if len(entries) <= most {
			return
		}
		if key != except {
			delete(entries, key)
		}
	}
}

// sweep drops old notes from time to time. The caller holds mu.
func (n *notes) sweep(now time.Time) {
	if now.Sub(n.swept) < noteLife {
		return
	}
	n.swept = now
	old := func(at time.Time) bool { return now.Sub(at) > noteLife }
	maps.DeleteFunc(n.byUID, func(_ types.UID, known note) bool { return old(known.since) })
	maps.DeleteFunc(n.begun, func(_ types.UID, at time.Time) bool { return old(at) })
}
