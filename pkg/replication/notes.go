package replication

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
)

const (
	// noteLife is how long an unused note is kept. It only bounds memory.
	noteLife = 20 * time.Minute
	// freeRepairs of the same fields are made at once. If all are undone, a program undoes them, not a person.
	freeRepairs = 3
	// freeRepairsOfAny are made at once if it is other fields each time.
	freeRepairsOfAny = 12
	// quiet is how long a copy must stay unchanged for its repairs to be forgotten.
	quiet = 10 * time.Minute
	// The delay after failures doubles from firstDelay to longestDelay.
	firstDelay, longestDelay = time.Second, 5 * time.Minute
)

// copyNote is what this process remembers about one copy. It saves requests. Forgetting it is always safe.
type copyNote struct {
	// Replaced is the resourceVersion that our last write replaced, "" for a create. A cache that still shows it lags.
	Replaced string
	Written  time.Time
	// Applied is the digest of what we applied last. A copy that lacks it was changed by somebody else since.
	Applied string
	// ReplicasTaken is what the managed fields showed for this generation of the copy.
	JudgedUID        types.UID
	JudgedGeneration int64
	ReplicasTaken    bool
	// Slot is the value of the slot label as the cache last showed it; "" if copies have no such label.
	Slot string
	// Shown is the version of the copy that the cache showed last, 0 for none.
	Shown uint64
	// HiddenSince is when the API server first showed a copy that the cache doesn't, and Restored when it was last applied
	// so that it gets the label back that caches select by.
	HiddenSince, Restored time.Time
	// A hold delays a request that failed: the one with this key isn't repeated until then.
	HoldKey, HoldText string
	HoldUntil         time.Time
	Holds             int
	// Silences counts consecutive tries that got no answer, or none but an error of the server's own, or that it doesn't
	// take the credentials. The next one waits until SilentUntil.
	Silences    int
	SilentUntil time.Time
	// Slow: the last write took longer than a target's requests may. The next one is given more time.
	Slow bool
	// Repairs counts consecutive repairs of the same fields, AllRepairs those of any.
	Repairs       int
	AllRepairs    int
	RepairedPaths string
	RepairedAt    time.Time

	// said is the error with which the last of these was answered; "" if there was no answer.
	said    string
	touched time.Time
}

// contested returns how long a repair of these fields has to wait because earlier ones were undone.
func (n copyNote) contested(paths []string, now time.Time) time.Duration {
	pause := time.Duration(0)
	if n.Repairs >= freeRepairs && n.RepairedPaths == strings.Join(paths, ",") {
		pause = delay(n.Repairs - freeRepairs)
	}
	if n.AllRepairs >= freeRepairsOfAny {
		pause = max(pause, delay(n.AllRepairs-freeRepairsOfAny))
	}
	if pause == 0 || now.Sub(n.RepairedAt) > quiet {
		return 0
	}
	return n.RepairedAt.Add(pause).Sub(now)
}

// repaired counts a repair. A repair that the API server undid at once uses up all free ones.
func (n *copyNote) repaired(paths []string, undone bool, now time.Time) {
	if now.Sub(n.RepairedAt) > quiet {
		n.Repairs, n.AllRepairs = 0, 0
	}
	if key := strings.Join(paths, ","); key != n.RepairedPaths {
		n.Repairs, n.RepairedPaths = 0, key
	}
	n.Repairs++
	if undone { // an admission policy undid it: waiting starts now, for these fields only
		n.Repairs = max(n.Repairs, freeRepairs)
	} else {
		n.AllRepairs++
	}
	n.RepairedAt = now
}

// hold delays the next try of the same request, by at most most.
func (n *copyNote) hold(key, text string, most time.Duration, now time.Time) time.Duration {
	if n.HoldKey != key {
		n.Holds = 0
	}
	wait := min(delay(n.Holds), most)
	n.HoldKey, n.HoldText, n.HoldUntil = key, text, now.Add(wait)
	n.Holds++
	return wait
}

// longestSilence bounds how long it goes unnoticed that a target answers again.
const longestSilence = 15 * time.Second

// silent delays the next try after one that got no answer, or only the error said. asked is for how long the target
// asked to be left alone.
func (n *copyNote) silent(said string, asked time.Duration, now time.Time) time.Duration {
	wait := max(min(delay(n.Silences), longestSilence), asked)
	n.Silences++
	n.said = said
	n.SilentUntil = now.Add(wait)
	return wait
}

// wrote records a write and what its reply showed.
func (n *copyNote) wrote(replaced string, result *appsv1.Deployment, scalers []string, now time.Time) {
	if result.ResourceVersion != replaced { // otherwise it changed nothing, and causes no event
		n.Replaced, n.Written, n.HiddenSince = replaced, now, time.Time{}
	}
	n.judge(result, scalers)
}

// seen records what the cache shows (nil for nothing), and reports whether that is news. Without it, a copy that is
// deleted soon after it was created would be taken for one that the cache doesn't show yet. If a copy goes back to an
// earlier version, its cluster was restored from a backup. Generations will be used again there, so the note is void.
func (n *copyNote) seen(d *appsv1.Deployment) (news bool) {
	shown := n.Shown
	if d != nil {
		shown, _ = strconv.ParseUint(d.ResourceVersion, 10, 64) // 0 is ignored
		if shown < n.Shown {
			*n = copyNote{}
		}
	}
	version, slot := "", n.Slot
	if d != nil {
		version, slot = d.ResourceVersion, d.Labels[labelSlot]
	}
	written := n.Written
	if n.Replaced != version {
		written = time.Time{} // The cache shows our last write, or what came after it.
	}
	hidden := n.HiddenSince
	if d != nil {
		hidden = time.Time{}
	}
	news = written != n.Written || slot != n.Slot || shown != n.Shown || hidden != n.HiddenSince
	n.Written, n.Slot, n.Shown, n.HiddenSince = written, slot, shown, hidden
	return news
}

func (n *copyNote) judge(d *appsv1.Deployment, scalers []string) {
	n.JudgedUID, n.JudgedGeneration = d.UID, d.Generation
	n.ReplicasTaken = replicasTaken(d.ManagedFields, scalers)
}

// delay doubles with each failed try.
func delay(tries int) time.Duration {
	if tries > 16 {
		return longestDelay
	}
	return min(firstDelay<<tries, longestDelay)
}

// copyID names one copy of one source.
type copyID struct {
	source types.UID
	target multicluster.ClusterName
}

// notes holds all notes of a Reconciler.
type notes struct {
	mu sync.Mutex
	// All below is guarded by mu.
	copies  map[copyID]copyNote
	sources map[types.UID]sourceNote
	// released are the names of sources that this process released, and when.
	released map[types.NamespacedName]time.Time
	swept    time.Time
}

// sourceNote is what is remembered about a source.
type sourceNote struct {
	// replaced are the resourceVersions that our last writes replaced, mostReplaced at most.
	replaced []string
	// finished reports whether the source was released: no copy of it may be left.
	finished bool
	written  time.Time
	// flips bounds how often its condition gets another status or reason while the source is of one generation.
	flips      *rate.Limiter
	generation int64
}

// mostReplaced writes of a source are more than its cache may be behind by within cacheGrace.
const mostReplaced = 8

// freeFlips changes of status or reason are written at once, as many as a day with several incidents has. After that
// there is one a flipEvery: a target that comes and goes all the time mustn't cost two writes each time, for every
// source.
const (
	freeFlips = 20
	flipEvery = 20 * time.Second
)

func (n *notes) recall(id copyID) copyNote {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.copies[id]
}

func (n *notes) change(id copyID, now time.Time, set func(*copyNote)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.copies == nil {
		n.copies = map[copyID]copyNote{}
	}
	note := n.copies[id]
	set(&note)
	note.touched = now
	n.copies[id] = note
	n.sweep(now)
}

// behind reports whether the source that the cache shows is certainly older than our last write to it.
func (n *notes) behind(source *appsv1.Deployment, now time.Time) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	note := n.sources[source.UID]
	return now.Sub(note.written) < cacheGrace && slices.Contains(note.replaced, source.ResourceVersion)
}

// replaced records that we replaced this version of a source, and whether we released the source by that.
func (n *notes) replaced(source *appsv1.Deployment, finished bool, now time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.sources == nil {
		n.sources, n.released = map[types.UID]sourceNote{}, map[types.NamespacedName]time.Time{}
	}
	if finished {
		n.released[client.ObjectKeyFromObject(source)] = now
	}
	note := n.sources[source.UID]
	if now.Sub(note.written) >= cacheGrace {
		note.replaced = nil
	}
	note.replaced = append(note.replaced[max(0, len(note.replaced)+1-mostReplaced):], source.ResourceVersion)
	note.finished = finished
	note.written = now
	n.sources[source.UID] = note
	n.sweep(now)
}

// pause returns for how long a source's condition isn't written because status and reason have changed often.
func (n *notes) pause(source *appsv1.Deployment, now time.Time) time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	note := n.sources[source.UID]
	if note.flips == nil || note.generation != source.Generation { // an edit is news, however often it comes
		return 0
	}
	return time.Duration(max(0, 1-note.flips.TokensAt(now)) * float64(flipEvery))
}

// flipped records that a source's condition got another status or reason. It has been written just now.
func (n *notes) flipped(source *appsv1.Deployment, now time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	note, known := n.sources[source.UID]
	if !known { // the write has changed nothing
		return
	}
	if note.flips == nil || note.generation != source.Generation {
		note.flips, note.generation = rate.NewLimiter(rate.Every(flipEvery), freeFlips), source.Generation
	}
	note.flips.ReserveN(now, 1) // also if a bit is missing of the one that pause has waited for
	n.sources[source.UID] = note
}

// finished reports whether this process released the source of that UID.
func (n *notes) finished(uid string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.sources[types.UID(uid)].finished
}

// releasedOne reports whether this process released a source of that name.
func (n *notes) releasedOne(key types.NamespacedName) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, found := n.released[key]
	return found
}

// sweep drops old notes from time to time. The caller holds mu.
func (n *notes) sweep(now time.Time) {
	if now.Sub(n.swept) < noteLife {
		return
	}
	n.swept = now
	old := func(at time.Time) bool { return now.Sub(at) > noteLife }
	maps.DeleteFunc(n.copies, func(_ copyID, n copyNote) bool { return old(n.touched) })
	maps.DeleteFunc(n.sources, func(_ types.UID, n sourceNote) bool { return old(n.written) })
	maps.DeleteFunc(n.released, func(_ types.NamespacedName, at time.Time) bool { return old(at) })
}
