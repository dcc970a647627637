package witness

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tenure-dev/tenure/bench/audit"
	"github.com/tenure-dev/tenure/shard/protocol"
)

// Schema is the version of a Report's JSON format.
const Schema = "tenure.dev/witness/v2"

// Kind is a way to break an invariant, or to lack evidence.
type Kind string

// Evidence takes the place of the invariant in kinds of missing evidence.
const Evidence = "evidence"

// The kinds, each with the invariant that it breaks.
const (
	// FallingEpoch (I2): a write to an object came after a write of a higher epoch to the same object.
	FallingEpoch Kind = "falling-epoch"
	// InterleavedKey (I1): the same for all objects of a key, which are an At and its Pods.
	InterleavedKey Kind = "interleaved-key"
	// InterleavedShard (I1): a write for a shard came after a write of a higher epoch for a shard that shares a slot.
	InterleavedShard Kind = "interleaved-shard"
	// WriteAfterHandoff (I1): a write began after the shard's record had been granted to a higher epoch, or left without
	// a holder.
	WriteAfterHandoff Kind = "write-after-handoff"
	// WriteBeforeTenure (I1): a write was answered before the request that began its tenure arrived.
	WriteBeforeTenure Kind = "write-before-tenure"
	// WriteWithoutGrant (I1): a write was sent under a shard and epoch that no version of the shard's record grants.
	WriteWithoutGrant Kind = "write-without-grant"
	// WriteAfterSeal (I1): an incarnation began a write after its Lease was sealed, or after it had deleted its Lease. A
	// renewal of that Lease is such a write.
	WriteAfterSeal Kind = "write-after-seal"
	// ClaimBeforeSeal (I1): a shard was claimed from a holder whose Lease wasn't sealed yet.
	ClaimBeforeSeal Kind = "claim-before-seal"
	// HolderWithoutLease (I1): a shard was given to an incarnation that had no Lease by then.
	HolderWithoutLease Kind = "holder-without-lease"
	// ManyInFlight (I1): at a change of holder, more writes of the old tenure than Rules.InFlight were in flight.
	ManyInFlight Kind = "many-in-flight"
	// TwoHolders (I1): two incarnations wrote under one epoch, or one that the record doesn't name did.
	TwoHolders Kind = "two-holders"
	// OverlappingRecords (I1): two records that share a slot had holders at the same time.
	OverlappingRecords Kind = "overlapping-records"
	// WrongShard (I1): a write under one shard went to an object that belongs to another, by its UID, its owner's UID
	// or its label; or to an At or a Pod of another cluster.
	WrongShard Kind = "wrong-shard"
	// RecordEpochFell (I2): a slot got a lower epoch, or the same epoch in another record.
	RecordEpochFell Kind = "record-epoch-fell"
	// LostAt (I4): an At was due by the end of the logs, and has neither a Pod nor phase DONE.
	LostAt Kind = "lost-at"
	// CostlyMove (I5): one move took more than four writes to the shard's record.
	CostlyMove Kind = "costly-move"
	// DuplicatePod (I7): two Pods of one At existed at the same time.
	DuplicatePod Kind = "duplicate-pod"
	// PodAfterDone (I7): a Pod was created after its At was DONE.
	PodAfterDone Kind = "pod-after-done"
	// UnnamedPod (I7): a Pod of ours has a name that the server generated, so the server can't refuse a second one.
	UnnamedPod Kind = "unnamed-pod"
	// EarlyPod (I7): a Pod was created before its At was due.
	EarlyPod Kind = "early-pod"

	// NoPods: an At is DONE and names its Pod, and no line shows that Pod.
	NoPods Kind = "no-pods"
	// NoWrites, NoAts, NoRecords, NoLeases: the logs have none to judge.
	NoWrites  Kind = "no-writes"
	NoAts     Kind = "no-ats"
	NoRecords Kind = "no-records"
	NoLeases  Kind = "no-leases"
	// Unattributed: a write of ours whose User-Agent names no shard, epoch and incarnation.
	Unattributed Kind = "unattributed-write"
	// PodWithoutAt: a Pod of ours belongs to no known At.
	PodWithoutAt Kind = "pod-without-at"
	// Bodiless: a write was logged without the object that the judgement needs.
	Bodiless Kind = "no-body"
	// UnknownAt: the logs don't show whether an At was lost, or served early.
	UnknownAt Kind = "unknown-at"
	// MissingFile: a rotated log is missing.
	MissingFile Kind = "missing-file"
	// MissingLine: a write replaced a version that no line of the log shows, or no line shows an object's creation.
	MissingLine Kind = "missing-line"
	// TruncatedLine: the last line of a file is incomplete.
	TruncatedLine Kind = "truncated-line"
	// UndeclaredRestore: resourceVersions fell, and no restore was declared.
	UndeclaredRestore Kind = "undeclared-restore"
)

// kinds lists all kinds in the order of the report.
var kinds = []struct {
	kind      Kind
	invariant string
}{
	{FallingEpoch, "I2"}, {InterleavedKey, "I1"}, {InterleavedShard, "I1"}, {WriteAfterHandoff, "I1"},
	{WriteBeforeTenure, "I1"}, {WriteWithoutGrant, "I1"}, {WriteAfterSeal, "I1"}, {ClaimBeforeSeal, "I1"},
	{HolderWithoutLease, "I1"}, {ManyInFlight, "I1"}, {TwoHolders, "I1"}, {OverlappingRecords, "I1"},
	{WrongShard, "I1"}, {RecordEpochFell, "I2"},
	{DuplicatePod, "I7"}, {PodAfterDone, "I7"}, {EarlyPod, "I7"}, {UnnamedPod, "I7"}, {LostAt, "I4"}, {CostlyMove, "I5"},
	{NoWrites, Evidence}, {NoAts, Evidence}, {NoRecords, Evidence}, {NoLeases, Evidence}, {NoPods, Evidence},
	{Unattributed, Evidence},
	{PodWithoutAt, Evidence}, {Bodiless, Evidence}, {UnknownAt, Evidence}, {MissingFile, Evidence},
	{MissingLine, Evidence}, {TruncatedLine, Evidence}, {UndeclaredRestore, Evidence},
}

// absences are the kinds that an unwitnessed run may have.
var absences = []Kind{NoWrites, NoAts, NoRecords, NoLeases}

func invariantOf(kind Kind) string {
	for _, k := range kinds {
		if k.kind == kind {
			return k.invariant
		}
	}
	return ""
}

func evidenceKinds() string {
	var names []string
	for _, k := range kinds {
		if k.invariant == Evidence {
			names = append(names, string(k.kind))
		}
	}
	return strings.Join(names, ", ")
}

// Report is the result of a judgement.
type Report struct {
	Schema string      `json:"schema"`
	Dir    string      `json:"dir,omitempty"`
	Input  audit.Input `json:"input"`
	// OK says that no violation was found, including missing evidence unless a rule waives it.
	OK bool `json:"ok"`
	// Unwitnessed is the reason why there was nothing to judge in the run. Such a report can't be published.
	Unwitnessed string       `json:"unwitnessed,omitempty"`
	Counts      map[Kind]int `json:"counts"`
	Violations  []Violation  `json:"violations"`
	// Notices say what couldn't be judged, and why that is accepted.
	Notices []string `json:"notices"`

	// Users are all who sent a request; true: with the User-Agent of our program.
	Users map[string]bool `json:"-"`
	// Served are the Ats that were served.
	Served []Served `json:"-"`

	From time.Time `json:"from"`
	To   time.Time `json:"to"`

	Writes       WriteStats   `json:"writes"`
	Fenced       Fenced       `json:"fencedAtTheServer"`
	Ats          AtStats      `json:"ats"`
	Moves        MoveStats    `json:"moves"`
	Handoffs     []Handoff    `json:"handoffs"`
	Coordination Coordination `json:"coordination"`
}

// Count returns the number of violations of all kinds.
func (r *Report) Count() int {
	n := 0
	for _, c := range r.Counts {
		n += c
	}
	return n
}

// Err returns nil if nothing was violated, otherwise an error with every kind's count and first violation.
func (r *Report) Err() error {
	if r.OK {
		return nil
	}
	var errs []error
	for _, k := range kinds {
		n := r.Counts[k.kind]
		if i := slices.IndexFunc(r.Violations, func(v Violation) bool { return v.Kind == k.kind }); n > 0 && i >= 0 {
			errs = append(errs, fmt.Errorf("%d times %s", n, r.Violations[i]))
		}
	}
	return errors.Join(errs...)
}

// Violation is one broken invariant, with the log lines that prove it.
type Violation struct {
	Kind      Kind   `json:"kind"`
	Invariant string `json:"invariant"`
	Object    string `json:"object,omitempty"`
	Shard     string `json:"shard,omitempty"`
	Detail    string `json:"detail"`
	First     *Line  `json:"first,omitempty"`
	Second    *Line  `json:"second,omitempty"`
}

// String returns the violation on one line, and each line of evidence on one more.
func (v Violation) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s: %s", v.Invariant, v.Kind, v.Detail)
	for _, s := range []string{v.Object, v.Shard} {
		if s != "" {
			fmt.Fprintf(&b, " [%s]", s)
		}
	}
	for _, line := range []*Line{v.First, v.Second} {
		if line != nil {
			fmt.Fprintf(&b, "\n    %s", line)
		}
	}
	return b.String()
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

func (l *Line) String() string {
	s := fmt.Sprintf("%s:%d %s %s", l.File, l.Line, stamp(l.Time.UnixMicro()), l.Verb)
	if l.Replica != "" {
		s += fmt.Sprintf(" epoch %d by %s", l.Epoch, l.Replica)
	}
	return s
}

// WriteStats counts the writes that I1 and I2 were judged on.
type WriteStats struct {
	Judged  int `json:"judged"`
	Objects int `json:"objects"`
	Shards  int `json:"shards"`
	Tenures int `json:"tenures"`
	// Unknown are our attributed writes whose outcome the log doesn't show (server error, timeout).
	Unknown int `json:"unknown"`
	// ConcurrentKeys and ConcurrentShards count committed writes that were in flight together with one of a higher
	// epoch for the same key or shard. Times alone don't show which was committed first.
	ConcurrentKeys   int `json:"concurrentKeys"`
	ConcurrentShards int `json:"concurrentShards"`
	// Lost counts writes without a line that the end of an API server may explain.
	Lost int `json:"lost"`
}

// Fenced counts attributed writes that an API server refused.
type Fenced struct {
	Conflict      int `json:"conflict"`
	AlreadyExists int `json:"alreadyExists"`
	EpochRule     int `json:"epochRule"`
	Invalid       int `json:"invalid"`
	Other         int `json:"other"`
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
	Seen    int `json:"seen"`
	Done    int `json:"done"`
	Deleted int `json:"deleted"`
	// NotDue counts Ats that weren't due by the end of the logs, or before they were deleted.
	NotDue int `json:"notDue"`
	// Settling counts Ats that had been due for less than Rules.Settle at the end of the logs, or when they were
	// deleted.
	Settling int `json:"settling"`
	// Replaced counts Ats whose cluster was restored before they were served.
	Replaced   int `json:"replaced"`
	Pods       int `json:"pods"`
	PodsRemade int `json:"podsRemade"`
	// DoneConcurrent counts Pods whose creation was in flight together with their At's DONE.
	DoneConcurrent int `json:"doneConcurrent"`
	// Lateness is from the due time until the At was served (see [Served]).
	Lateness Spread `json:"lateness"`
	// Latest names the At that waited longest.
	Latest string `json:"latest,omitempty"`
}

// Served is when an At was served, and under which shard: when a replica made its Pod. To mark an At as begun doesn't
// serve it. If the answer to the request for its Pod isn't known, it is when a replica called the At DONE.
type Served struct {
	Cluster, Namespace, Name, Shard string

	Time time.Time
}

// Handoff is one change of a shard's holder.
type Handoff struct {
	Shard string            `json:"shard"`
	Kind  protocol.MoveKind `json:"kind"`
	From  string            `json:"from"`
	To    string            `json:"to"`
	Epoch uint64            `json:"epoch"`
	Time  time.Time         `json:"time"`
	// Writes is the number of committed writes to the record that this move took, Steps the same by kind of step.
	Writes int          `json:"writes"`
	Steps  map[Step]int `json:"steps"`
	// InFlight is the number of the old tenure's writes in flight while the record changed; InFlightMs is how long
	// after the change the last of them was answered.
	InFlight   int     `json:"inFlight"`
	InFlightMs float64 `json:"inFlightMs"`
	// GapMs is from the old tenure's last write to the new one's first; nil if one of them wrote nothing.
	GapMs *float64 `json:"gapMs"`
	// Due is the number of keys that waited when the new tenure first wrote: due Ats, and changes of Deployments to be
	// copied.
	Due int `json:"due"`
	// UnservedMs is the part of the gap in which at least one of them waited; nil if none did, or if the gap isn't
	// known.
	UnservedMs *float64 `json:"unservedMs"`
}

// MoveStats sums up the handoffs.
type MoveStats struct {
	Planned int `json:"planned"`
	Exit    int `json:"exit"`
	Crash   int `json:"crash"`
	Join    int `json:"join"`
	// CalledOff counts plans that were changed before the handoff, CalledOffWrites the writes that they took.
	CalledOff       int `json:"calledOff"`
	CalledOffWrites int `json:"calledOffWrites"`
	// Writes are all committed writes to records that moves took, except claims of shards without a holder.
	Writes    int     `json:"writes"`
	PerMove   float64 `json:"writesPerMove"`
	MaxWrites int     `json:"maxWrites"`
	Rejected  int     `json:"rejectedRecordWrites"`
	// Steps are the writes by kind of step, over all moves.
	Steps map[Step]int `json:"steps"`
	// InFlight counts old tenures' writes in flight at changes of holder, MaxInFlight the most at one of them.
	InFlight    int     `json:"inFlight"`
	MaxInFlight int     `json:"maxInFlight"`
	InFlightMs  float64 `json:"inFlightMs"`
	// Kinds is a table by kind of move.
	Kinds map[protocol.MoveKind]MoveRow `json:"kinds"`
}

// MoveRow sums up the moves of one kind.
type MoveRow struct {
	N int `json:"n"`
	// Gap is from write to write. If no key was due it shows the load, not the move.
	Gap Spread `json:"gap"`
	// Unserved is the part of the gap in which a key waited, over the moves in which one did. Due counts these keys.
	Unserved Spread `json:"unserved"`
	Due      int    `json:"due"`
}

// Coordination counts the writes to the home cluster for membership and ownership.
type Coordination struct {
	Replicas int `json:"replicas"`
	Writes   int `json:"writes"`
	// SteadySeconds are replica-seconds in which no shard moved and no replica joined or left.
	SteadySeconds int `json:"steadyReplicaSeconds"`
	// PerSecond is writes per second and replica in steady state; nil if that lasted for too short a time.
	PerSecond    *float64 `json:"writesPerSecondPerReplica"`
	MaxPerSecond *float64 `json:"maxWritesPerSecondOfAReplica"`
}
