package report

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/tenure-dev/tenure/bench/record"
	"github.com/tenure-dev/tenure/bench/scenario"
	"github.com/tenure-dev/tenure/bench/stats"
	"github.com/tenure-dev/tenure/shard/protocol"
)

// Schema names the shape of a report in JSON; schema.json beside this file is that shape.
const Schema = "tenure.dev/bench/v1"

// Report is one run of a scenario.
type Report struct {
	// File is where it was read from, for messages.
	File     string `json:"-"`
	Schema   string `json:"schema"`
	Scenario string `json:"scenario"`
	Summary  string `json:"summary"`
	// Valid says that the figures mean what they say. Reasons are why not.
	Valid   bool     `json:"valid"`
	Reasons []string `json:"reasons"`
	// Warnings are what a reader should know of a valid run.
	Warnings []string `json:"warnings"`

	Started     time.Time         `json:"started"`
	Seconds     float64           `json:"seconds"`
	Command     string            `json:"command"`
	Config      scenario.Scenario `json:"config"`
	Environment Environment       `json:"environment"`

	// Results are those of the sharded fleet; in a sweep, of the largest one.
	Results    *Results            `json:"results"`
	References map[string]*Results `json:"references"`
	// Ratios are ours over a reference's: "throughput_per_s/floor". For turns they are those without tracing over
	// the others.
	Ratios map[string]stats.Ratio `json:"ratios"`
	// Intervals has figures by their dotted path, over rounds or, in a pool, over runs. Figures that are counted
	// and not sampled, as lost Ats are, have none.
	Intervals map[string]stats.Ratio `json:"intervals"`
	// Runs is how many runs were pooled in this report, 0 for a single run. A pool has figures only in Ratios and
	// Intervals.
	Runs int `json:"runs,omitempty"`
	// Profiled says that CPU profiles were taken meanwhile, which costs the fleets some percent. Profile sets them side by
	// side, over all rounds. In a sweep it has the fleets of each size.
	Profiled bool     `json:"profiled,omitempty"`
	Profile  *Profile `json:"profile,omitempty"`

	Sweep []SweepPoint `json:"sweep,omitempty"`
	// ScaleOut and WatchCost are what a sweep shows.
	ScaleOut  *ScaleOut  `json:"scale_out,omitempty"`
	WatchCost *WatchCost `json:"watch_cost,omitempty"`

	// Knee is what a search over rates found.
	Knee *Knee `json:"knee,omitempty"`

	// Checks are the scenario's thresholds and what became of them.
	Checks []Verdict `json:"checks"`
}

// Fleet is one fleet of a run.
type Fleet struct {
	Name    string
	Results *Results
}

// Fleets lists ours, or all of a sweep, and then the references by their names.
func (r *Report) Fleets() (all []Fleet) {
	if len(r.Sweep) == 0 {
		all = append(all, Fleet{"tenure", r.Results})
	}
	for _, s := range r.Sweep {
		all = append(all, Fleet{Count(s.Replicas, "replica"), s.Results})
	}
	for _, name := range slices.Sorted(maps.Keys(r.References)) {
		all = append(all, Fleet{name, r.References[name]})
	}
	return all
}

// Environment is where it ran.
type Environment struct {
	OS       string `json:"os"`
	Kernel   string `json:"kernel"`
	CPU      string `json:"cpu"`
	CPUs     int    `json:"cpus"`
	MemoryMB int64  `json:"memory_mb"`
	Go       string `json:"go"`
	// GoSettings are the variables of [GoVariables] that were set. The replicas, the servers and the bare clients inherit
	// them.
	GoSettings map[string]string `json:"go_settings,omitempty"`
	Tenure     string            `json:"tenure"`
	APIServer  string            `json:"api_server"`
	// EtcdData is where etcd kept its data, and whether it synced.
	EtcdData string `json:"etcd_data"`
	// LoadBefore is the machine's load average before the run: others may have been at work.
	LoadBefore float64 `json:"load_before"`
	// Others is the share of the machine's CPU time that other programs took during the run; absent if not known.
	Others *float64 `json:"others_cpu_share,omitempty"`
}

// GoVariables are the environment variables that change how Go programs use processors and memory.
var GoVariables = []string{"GOGC", "GOMAXPROCS", "GOMEMLIMIT"}

// GoText lists the Go variables that were set, "" if none was.
func (e Environment) GoText() string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(e.GoSettings)) {
		all = append(all, name+"="+e.GoSettings[name])
	}
	return strings.Join(all, ", ")
}

// Commit is what the name of a commit looks like. A revision with changes beside it is none.
var Commit = regexp.MustCompile(`^[0-9a-f]{7,40}$`)

// SameMachine reports whether two runs were taken on the same machine, as far as this says.
func (e Environment) SameMachine(o Environment) bool {
	return e.CPU == o.CPU && e.CPUs == o.CPUs && e.Kernel == o.Kernel
}

// MaxOthers is the share of the machine's processors that other programs may take during a run whose figures are
// published: beyond it absolute figures are as much theirs as ours, and queues that never form on a free machine do.
const MaxOthers = 0.10

// Results are the figures of one fleet. What wasn't measured is absent.
type Results struct {
	QueueLatency         *stats.Quantiles `json:"queue_latency_ms,omitempty"`
	QueueLatencyBackfill *stats.Quantiles `json:"queue_latency_backfill_ms,omitempty"`
	EventToReconcile     *stats.Quantiles `json:"event_to_reconcile_ms,omitempty"`
	Work                 *stats.Quantiles `json:"work_ms,omitempty"`
	Converge             *stats.Quantiles `json:"converge_ms,omitempty"`
	Lateness             *stats.Quantiles `json:"lateness_ms,omitempty"`
	HandoffGap           *stats.Quantiles `json:"handoff_gap_ms,omitempty"`
	CrashGap             *stats.Quantiles `json:"crash_gap_ms,omitempty"`
	CrashGapOverLease    *stats.Quantiles `json:"crash_gap_over_lease_ms,omitempty"`
	// HandoffUnserved and CrashUnserved are by the audit logs: for how long due keys waited between the last write
	// of the old holder and the first of the new one. Moves at which no key was due aren't included: compare N with
	// the count in Moves. The gaps above are by the replicas' own logs.
	HandoffUnserved *stats.Quantiles `json:"handoff_unserved_ms,omitempty"`
	CrashUnserved   *stats.Quantiles `json:"crash_unserved_ms,omitempty"`
	// LiveConverge is Converge for the clusters that weren't paused, while one was.
	LiveConverge *stats.Quantiles `json:"live_converge_ms,omitempty"`
	// Noises has, by noise, what happened while the last cluster, or several, were bad neighbours.
	Noises map[string]Noisy `json:"noises,omitempty"`
	// DriftRepair is from when a stranger should have changed a copy until a watch shows that this was undone.
	DriftRepair *stats.Quantiles `json:"drift_repair_ms,omitempty"`

	Throughput *float64 `json:"throughput_per_s,omitempty"`
	// Reconciles is the rate between the 20th and the 60th percent of a round's reconciles: while all are busy.
	Reconciles *float64 `json:"reconciles_per_s,omitempty"`

	APIWrites *float64       `json:"api_writes_per_object,omitempty"`
	APIReads  *float64       `json:"api_reads_per_object,omitempty"`
	APICalls  map[string]int `json:"api_calls,omitempty"`
	Conflicts *int           `json:"conflicts,omitempty"`
	// WritesPerCopy are writes to Deployments of the workload clusters per copy made or repaired, WritesPerSource those to
	// Deployments of the home cluster per Deployment.
	WritesPerCopy   *float64 `json:"writes_per_copy,omitempty"`
	WritesPerSource *float64 `json:"writes_per_source,omitempty"`

	WatchBytes     []float64 `json:"watch_bytes_per_replica,omitempty"`
	WatchDiscarded *float64  `json:"watch_discarded_events,omitempty"`

	Replicas             []string  `json:"replicas,omitempty"`
	CPUSeconds           []float64 `json:"cpu_seconds_per_replica,omitempty"`
	CPUPerObject         *float64  `json:"cpu_seconds_per_object,omitempty"`
	RSS                  []float64 `json:"rss_mb_per_replica,omitempty"`
	ReconcilesPerReplica []int     `json:"reconciles_per_replica,omitempty"`
	// ObjectsPerReplica counts the objects that each reconciled at least once.
	ObjectsPerReplica []int              `json:"objects_per_replica,omitempty"`
	Servers           map[string]Process `json:"servers,omitempty"`

	Objects    int `json:"objects"`
	Copies     int `json:"copies,omitempty"`
	Lost       int `json:"lost"`
	Duplicates int `json:"duplicates"`
	Early      int `json:"early"`

	// Violations are those that the witness found in the audit logs; absent where nothing carries an epoch.
	Violations     *int                      `json:"violations,omitempty"`
	FirstViolation string                    `json:"first_violation,omitempty"`
	Moves          map[protocol.MoveKind]int `json:"moves,omitempty"`
	WritesPerMove  *float64                  `json:"writes_per_move,omitempty"`
	TimeToHeld     *float64                  `json:"time_to_held_s,omitempty"`

	Generator  *Generator    `json:"generator,omitempty"`
	QueueDepth []Series      `json:"queue_depth,omitempty"`
	Ownership  []record.Span `json:"ownership,omitempty"`
	Steps      []Mark        `json:"steps,omitempty"`
	Rounds     []Round       `json:"rounds,omitempty"`
	// Turns are short rounds of a fleet that does several things in turns, by what it did. Those in the same place of the
	// lists were next to each other in time.
	Turns map[string][]Round `json:"turns,omitempty"`
}

// Noisy is what happened beside one noise.
type Noisy struct {
	// Others is from when an At of another cluster should have been asked for until it was DONE.
	Others *stats.Quantiles `json:"neighbour_ms,omitempty"`
	// OwnDone counts the noisy cluster's own Ats that were DONE meanwhile.
	OwnDone int `json:"own_done"`
	// OwnBegun is the longest time, in seconds, from the end of the noise until the first of them that was left was DONE.
	// It is absent if none was ever left.
	OwnBegun *float64 `json:"own_begun_s,omitempty"`
	// OwnSettled is the longest time, in seconds, from the end of the noise until the last of them was DONE; absent
	// likewise.
	OwnSettled *float64 `json:"own_settled_s,omitempty"`
	Rounds     []Round  `json:"rounds,omitempty"`
}

// Process is what one component of the control planes used.
type Process struct {
	CPUSeconds float64 `json:"cpu_seconds"`
	RSS        float64 `json:"rss_mb"`
}

// Generator is how the load generator did.
type Generator struct {
	Offered  float64          `json:"offered_per_s,omitempty"`
	Achieved float64          `json:"achieved_per_s,omitempty"`
	Lateness *stats.Quantiles `json:"lateness_ms,omitempty"`
	// Changes is the lateness of the changes beside the load.
	Changes *stats.Quantiles `json:"changes_lateness_ms,omitempty"`
}

// Series is a figure over time, in seconds since the start of the load.
type Series struct {
	Name   string        `json:"name"`
	Points []stats.Point `json:"points"`
}

// Mark is something that happened, in seconds since the start of the load.
type Mark struct {
	At   float64 `json:"at"`
	What string  `json:"what"`
}

// Round is one load given to one fleet.
type Round struct {
	Seconds float64            `json:"seconds"`
	Figures map[string]float64 `json:"figures"`
}

// SweepPoint is one fleet of a sweep.
type SweepPoint struct {
	Replicas int      `json:"replicas"`
	Results  *Results `json:"results"`
}

// ScaleOut sets a sweep's capacities beside the ideal, n times that of the smallest fleet per replica.
type ScaleOut struct {
	// Unit of the capacity.
	Unit       string             `json:"unit"`
	Capacity   map[string]float64 `json:"capacity"`
	Efficiency map[string]float64 `json:"efficiency"`
	Makespan   map[string]float64 `json:"makespan_efficiency"`
}

// Knee is the highest rate of Ats coming due that was served in time.
type Knee struct {
	// SLO is what in time means: the lateness in ms allowed at the 99th percentile.
	SLO  float64 `json:"slo_ms"`
	Rate float64 `json:"rate_per_s"`
	// Found says that a higher rate wasn't served in time; else the knee may be higher than all rates that were tried.
	Found bool `json:"found"`
	// Points are the rates tried and the lateness of each.
	Points []stats.Point `json:"points"`
}

// WatchCost sets a sweep's received bytes per object beside those of the smallest fleet.
type WatchCost struct {
	// SumOverOne is of all replicas together.
	SumOverOne map[string]float64 `json:"sum_over_one"`
	// MaxOverShare is for the replica that received the most per object of its own. MaxOverEqual is for the replica
	// that received the most in total, over an equal share of the objects; it also shows how unevenly UIDs fall.
	MaxOverShare map[string]float64 `json:"max_over_share"`
	MaxOverEqual map[string]float64 `json:"max_over_equal"`
}
