package at

import (
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	cnatv1alpha1 "github.com/tenure-dev/tenure/pkg/apis/cnat/v1alpha1"
)

// noteLife is when a note is thrown away that nothing has asked for. It only
// bounds memory: without the note a claim is renewed, which costs one write.
const noteLife = 10 * time.Minute

// maxNotes bounds the notes: some 16 MiB. Beyond it any of the others is thrown away.
const maxNotes = 1 << 16

// maxBegun bounds how many Ats are remembered to have been started, and noteLife for how long: some 2 MiB.
const maxBegun = 1 << 14

// claimID tells one claim of an At from every other. Each claim is a
// compare-and-swap that sets the start time and counts, so no two are alike.
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
	// what is known about the Pod under claim.
	what  Note
	claim claimID
	// replaced is the resourceVersion that our last write was made from: who
	// still sees it looks at a cache that lags behind ourselves.
	replaced string
	// awaited says that a reconcile has met such a cache and waits for the event.
	awaited bool
	since   time.Time
}

// notes remembers, by UID, what this process itself did last.
type notes struct {
	mu sync.Mutex
	// All below is guarded by mu.
	byUID map[types.UID]note
	// begun is when this process started each At, that is DONE by now perhaps. An At is started once, unless its cluster
	// goes back to an earlier state.
	begun map[types.UID]time.Time
	swept time.Time
}

// recall is what is known about the claim in the At's status.
func (n *notes) recall(at *cnatv1alpha1.At, now time.Time) Note {
	n.mu.Lock()
	defer n.mu.Unlock()
	known := n.byUID[at.UID]
	if !known.claim.equal(claimOf(&at.Status)) {
		return NoteNone
	}
	if known.what == NoteMade && now.Sub(known.since) >= cacheGrace {
		return NoteNone
	}
	return known.what
}

// behind says whether the At that a cache shows is certainly older than our own
// last write to it. After a while it doesn't insist: a write from the old
// resourceVersion only conflicts. Whoever is told so may wait for the event of that
// write, if a second read of the cache shows the same: from the first on, [claimed]
// doesn't keep the event back.
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

// claimed says whether the claim in an At's status is our own, and nobody waits to
// hear of it.
func (n *notes) claimed(at *cnatv1alpha1.At) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	known, found := n.byUID[at.UID]
	return found && !known.awaited && known.claim.equal(claimOf(&at.Status))
}

// claims says that we are about to write, or hold, a claim, and what is known
// about the Pod under it.
func (n *notes) claims(uid types.UID, claim claimID, what Note, now time.Time) {
	n.change(uid, now, func(known *note) { known.claim, known.what = claim, what })
}

// begins notes that an At was started, and says whether this process had started it before.
func (n *notes) begins(uid types.UID, now time.Time) (again bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.begun == nil {
		n.begun = map[types.UID]time.Time{}
	}
	_, again = n.begun[uid]
	n.begun[uid] = now
	for other := range n.begun {
		if len(n.begun) <= maxBegun {
			break
		}
		if other != uid {
			delete(n.begun, other)
		}
	}
	return again
}

// unsure says that we no longer know whether there is a Pod.
func (n *notes) unsure(uid types.UID, now time.Time) {
	n.change(uid, now, func(known *note) { known.what = NoteNone })
}

// wrote says that we replaced a resourceVersion.
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
	if n.byUID == nil {
		n.byUID = map[types.UID]note{}
	}
	known := n.byUID[uid]
	set(&known)
	known.since = now
	n.byUID[uid] = known
	n.sweep(now)
	for other := range n.byUID {
		if len(n.byUID) <= maxNotes {
			break
		}
		if other != uid {
			delete(n.byUID, other)
		}
	}
}

// sweep throws away what nobody asked for, now and then. The caller holds mu.
func (n *notes) sweep(now time.Time) {
	if now.Sub(n.swept) < noteLife {
		return
	}
	n.swept = now
	for uid, known := range n.byUID {
		if now.Sub(known.since) > noteLife {
			delete(n.byUID, uid)
		}
	}
	for uid, at := range n.begun {
		if now.Sub(at) > noteLife {
			delete(n.begun, uid)
		}
	}
}
