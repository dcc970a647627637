package witness

import "time"

// Schema names the shape of a Report in JSON.
const Schema = "tenure.dev/witness/v1"

// Kind is a way of breaking an invariant.
type Kind string

// The kinds, each with the invariant that it breaks.
const (
	// FallingEpoch (I2): a write to an object after a write of a higher epoch to the same object.
	FallingEpoch Kind = "falling-epoch"
	// InterleavedKey (I1): the same over all objects of a key, that is an At and its Pods.
	InterleavedKey Kind = "interleaved-key"
	// InterleavedShard (I1): a write for a shard after a write of a higher epoch for a shard that shares a slot.
	InterleavedShard Kind = "interleaved-shard"
	// WriteAfterHandover (I1): a write that began after the shard's record was given to a higher epoch.
	WriteAfterHandover Kind = "write-after-handover"
	// WriteBeforeTenure (I1): a write that was answered before the request that began its tenure had arrived.
	WriteBeforeTenure Kind = "write-before-tenure"
	// TwoHolders (I1): two incarnations under one epoch, or one that the record doesn't name.
	TwoHolders Kind = "two-holders"
	// WrongShard (I1): a write to an At under a shard that its UID doesn't belong to.
	WrongShard Kind = "wrong-shard"
	// RecordEpochFell (I2): a shard's record came back with a lower epoch.
	RecordEpochFell Kind = "record-epoch-fell"
	// LostAt (I4): due by the end of the logs, and neither a Pod nor DONE.
	LostAt Kind = "lost-at"
	// CostlyMoves (I5): all moves together took more than four writes each.
	CostlyMoves Kind = "costly-moves"
	// DuplicatePod (I7): two Pods of one At at one time.
	DuplicatePod Kind = "duplicate-pod"
	// PodAfterDone (I7): a Pod created after its At was DONE.
	PodAfterDone Kind = "pod-after-done"
	// UnnamedPod (I7): a Pod of ours with a name that the server generated: it can't refuse a second one.
	UnnamedPod Kind = "unnamed-pod"
	// EarlyPod (I7): a Pod created before its At was due.
	EarlyPod Kind = "early-pod"
)

// kinds is the order in which a report lists them.
var kinds = []struct {
	kind      Kind
	invariant string
}{
	{FallingEpoch, "I2"}, {InterleavedKey, "I1"}, {InterleavedShard, "I1"}, {WriteAfterHandover, "I1"},
	{WriteBeforeTenure, "I1"}, {TwoHolders, "I1"}, {WrongShard, "I1"}, {RecordEpochFell, "I2"},
	{DuplicatePod, "I7"}, {PodAfterDone, "I7"}, {EarlyPod, "I7"}, {UnnamedPod, "I7"}, {LostAt, "I4"}, {CostlyMoves, "I5"},
}

// Report is what the logs say.
type Report struct {
	Schema string `json:"schema"`
	Dir    string `json:"dir,omitempty"`
	Input  Input  `json:"input"`
	// OK says that nothing was found. It does not say that everything could be seen: see Notices.
	OK bool `json:"ok"`
	// Vacuous says that there was nothing to judge: no write with an epoch and no At. A caller that has run a load
	// should take it for a failure.
	Vacuous    bool         `json:"vacuous"`
	Counts     map[Kind]int `json:"counts"`
	Violations []Violation  `json:"violations"`
	// Notices say what the logs did not allow to judge. None of it is counted as fine.
	Notices []string `json:"notices"`

	From time.Time `json:"from"`
	To   time.Time `json:"to"`

	Writes       WriteStats   `json:"writes"`
	Fenced       Fenced       `json:"fencedAtTheServer"`
	Ats          AtStats      `json:"ats"`
	Moves        MoveStats    `json:"moves"`
	Handoffs     []Handoff    `json:"handoffs"`
	Coordination Coordination `json:"coordination"`
	API          APIUse       `json:"api"`
}

// Count is the number of violations of all kinds.
func (r *Report) Count() int {
	n := 0
	for _, c := range r.Counts {
		n += c
	}
	return n
}

// Input is what was read.
type Input struct {
	Files int   `json:"files"`
	Lines int   `json:"lines"`
	Bytes int64 `json:"bytes"`
	// Torn is the number of files whose last line was cut short.
	Torn int `json:"torn"`
}

// Violation is one broken invariant, with the two log lines that prove it (one, where the second is an absence).
type Violation struct {
	Kind      Kind   `json:"kind"`
	Invariant string `json:"invariant"`
	Object    string `json:"object,omitempty"`
	Shard     string `json:"shard,omitempty"`
	Detail    string `json:"detail"`
	First     *Line  `json:"first,omitempty"`
	Second    *Line  `json:"second,omitempty"`
}

// Line is a place in a log.
type Line struct {
	File    string    `json:"file"`
	Line    int       `json:"line"`
	Time    time.Time `json:"time"`
	Verb    string    `json:"verb,omitempty"`
	Epoch   uint64    `json:"epoch,omitempty"`
	Replica string    `json:"replica,omitempty"`
}

// WriteStats counts the writes that I1 and I2 were judged on.
type WriteStats struct {
	Judged  int `json:"judged"`
	Objects int `json:"objects"`
	Shards  int `json:"shards"`
	Tenures int `json:"tenures"`
	// Unattributed are committed writes of ours to Ats, Pods, Deployments and Namespaces without shard and epoch.
	Unattributed int `json:"unattributed"`
	// Unknown are our attributed writes whose outcome the log doesn't tell (server error, timeout).
	Unknown int `json:"unknown"`
	// ConcurrentKeys and ConcurrentShards count committed writes that were in flight together with one of a higher
	// epoch of the same key or shard: times alone don't tell which was committed first.
	ConcurrentKeys   int `json:"concurrentKeys"`
	ConcurrentShards int `json:"concurrentShards"`
}

// Fenced counts attributed writes that an API server refused.
type Fenced struct {
	Conflict      int `json:"conflict"`
	AlreadyExists int `json:"alreadyExists"`
	EpochRule     int `json:"epochRule"`
	Invalid       int `json:"invalid"`
	Other         int `json:"other"`
	// Stale are those among them that began after a higher epoch of the same key had written.
	Stale int `json:"stale"`
}

// Spread sums up a set of durations, in milliseconds.
type Spread struct {
	N   int     `json:"n"`
	P50 float64 `json:"p50ms"`
	P99 float64 `json:"p99ms"`
	Max float64 `json:"maxMs"`
}

// AtStats is about Ats and their Pods.
type AtStats struct {
	Seen            int `json:"seen"`
	ScheduleUnknown int `json:"scheduleUnknown"`
	Done            int `json:"done"`
	Deleted         int `json:"deleted"`
	// NotDue were not due by the end of the logs, or not before they were deleted.
	NotDue int `json:"notDue"`
	// Settling were due for less than Rules.Settle at the end of the logs, or when they were deleted.
	Settling int `json:"settling"`
	// LostUnknown have neither Pod nor DONE in the logs, and the logs don't tell whether they should.
	LostUnknown int `json:"lostUnknown"`
	// EarlyUnknown are Pods of Ats whose schedule isn't known.
	EarlyUnknown int `json:"earlyUnknown"`
	Pods         int `json:"pods"`
	PodsRemade   int `json:"podsRemade"`
	// PodsWithoutAt were made by us and fit no At that the logs know.
	PodsWithoutAt int `json:"podsWithoutAt"`
	// DoneConcurrent are Pods whose create was in flight together with their At's DONE.
	DoneConcurrent int `json:"doneConcurrent"`
	// Lateness is from the due time to the end of the first committed write for the key.
	Lateness Spread `json:"lateness"`
	// Latest names the At that waited longest.
	Latest string `json:"latest,omitempty"`
}

// Handoff is one change of a shard's holder.
type Handoff struct {
	Shard string    `json:"shard"`
	Kind  string    `json:"kind"`
	From  string    `json:"from"`
	To    string    `json:"to"`
	Epoch uint64    `json:"epoch"`
	Time  time.Time `json:"time"`
	// Writes are the committed writes to the record that this change took.
	Writes int `json:"writes"`
	// GapMs is from the old tenure's last write to the new one's first; nil where one of them wrote nothing.
	GapMs *float64 `json:"gapMs"`
}

// MoveStats sums up the handoffs.
type MoveStats struct {
	Planned int `json:"planned"`
	Exit    int `json:"exit"`
	Crash   int `json:"crash"`
	Claim   int `json:"claim"`
	// Writes are all committed writes to the records that moves took, claims left out.
	Writes    int     `json:"writes"`
	PerMove   float64 `json:"writesPerMove"`
	MaxWrites int     `json:"maxWrites"`
	Rejected  int     `json:"rejectedRecordWrites"`
	// Gaps are from write to write, by kind of handoff. Where no key was due they measure the load, not the move.
	Gaps map[string]Spread `json:"gaps"`
}

// Coordination is what the home cluster is written to for membership and ownership.
type Coordination struct {
	Replicas int `json:"replicas"`
	Writes   int `json:"writes"`
	// SteadySeconds are replica-seconds in which no shard moved and no replica came or went.
	SteadySeconds int `json:"steadyReplicaSeconds"`
	// PerSecond is writes per second and replica in steady state, nil when there was none.
	PerSecond    *float64 `json:"writesPerSecondPerReplica"`
	MaxPerSecond *float64 `json:"maxWritesPerSecondOfAReplica"`
}

// APIUse counts our requests.
type APIUse struct {
	// Calls counts "verb resource" for requests that were answered with success.
	Calls map[string]int `json:"calls"`
	// WritesPerAt are committed writes to Ats, their status and Pods, over the Ats that were written to.
	WritesPerAt float64 `json:"writesPerAt"`
	// WritesPerDoneAt is the same over Ats that are DONE and whose creation the logs hold.
	WritesPerDoneAt    float64 `json:"writesPerDoneAt"`
	MaxWritesPerDoneAt int     `json:"maxWritesPerDoneAt"`
	// ReadsPerAt counts the reads of Ats and Pods that the log's policy logs; a watch is one read, once it has ended.
	ReadsPerAt float64 `json:"readsPerAt"`
}
