package scenario

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// Schema names the shape of a scenario file.
const Schema = "tenure.dev/bench/scenario/v1"

// Scenario is what is measured.
type Scenario struct {
	Schema  string `json:"schema"`
	Name    string `json:"name"`
	Summary string `json:"summary"`
	// Size is the profile in force.
	Size  string                    `json:"size"`
	Sizes map[string]map[string]any `json:"sizes,omitempty"`

	Fleet Fleet `json:"fleet"`
	// Sweep runs everything once for each of these numbers of replicas, one after the other.
	Sweep []int  `json:"sweep,omitempty"`
	Load  Load   `json:"load"`
	Steps []Step `json:"steps,omitempty"`
	// Noises are disturbances during the load, one in each round, in turn. A noise lasts from a second after the
	// first arrival until the last one, and makes the last cluster a bad neighbour.
	Noises []Noise `json:"noises,omitempty"`
	// Noisy is how many of the last clusters are bad neighbours. 0: one.
	Noisy int `json:"noisy,omitempty"`
	// Backlog is a number of Ats in the last cluster. With the noise "backlog" they fall due at once, with the
	// noise "added" they are due when the cluster is added.
	Backlog int `json:"backlog,omitempty"`
	// Compare names what runs beside the sharded fleet, in turns with it.
	Compare []Reference `json:"compare,omitempty"`
	// Rounds is how often the load is given to each.
	Rounds int `json:"rounds"`
	// Limit bounds the time from the end of the arrivals until everything has converged. What hasn't converged by
	// then counts as lost.
	Limit      Duration    `json:"limit"`
	Thresholds []Threshold `json:"thresholds,omitempty"`
	// Publish are figures that are published beside those that have thresholds, as dotted paths.
	Publish []string `json:"publish,omitempty"`
	// Unwitnessed is why there are no writes for the witness to judge. Such a run can't be published.
	Unwitnessed string `json:"unwitnessed,omitempty"`
}

// SameButSeed reports whether two scenarios are written alike, whatever their seeds.
func (s Scenario) SameButSeed(other Scenario) bool {
	s.Load.Seed, other.Load.Seed = 0, 0
	one, errOne := json.Marshal(s)
	two, errTwo := json.Marshal(other)
	return errOne == nil && errTwo == nil && bytes.Equal(one, two)
}

// SameSettings reports whether two runs were to do the same, whatever their seeds, their thresholds, and what is
// published of them.
func (s Scenario) SameSettings(other Scenario) bool {
	for _, c := range []*Scenario{&s, &other} {
		c.Summary, c.Sizes, c.Thresholds, c.Publish = "", nil, nil, nil
	}
	return s.SameButSeed(other)
}

// Fleet is what runs.
type Fleet struct {
	// Clusters are workload clusters with an API server each.
	Clusters int `json:"clusters"`
	// Kubeconfigs is how many clusters the replicas know. If it is more than Clusters, they are virtual ones on the
	// API servers of those. 0: Clusters.
	Kubeconfigs      int      `json:"kubeconfigs,omitempty"`
	Replicas         int      `json:"replicas"`
	Workers          int      `json:"workers"`
	ShardsPerCluster int      `json:"shardsPerCluster"`
	LeaseDuration    Duration `json:"leaseDuration"`
	// InjectedWork is the time that each reconcile is made to take.
	InjectedWork Duration `json:"injectedWork,omitempty"`
	// Slowdown is the share of InjectedWork by which reconciles of the reference "slow" take longer.
	Slowdown float64 `json:"slowdown,omitempty"`
	// TracingTurns is the length of the turns in which the replicas trace no reconcile, one in a hundred, and all
	// of them. Meanwhile the servers collect no garbage before they fill half of the memory. 0: no turns.
	TracingTurns Duration `json:"tracingTurns,omitempty"`
	// Storage of etcd: memory (no fsync) or disk.
	Storage Storage `json:"storage"`
	// Samples has the replicas write one record per reconcile.
	Samples bool `json:"samples"`
}

// Load is what is asked of the fleet.
type Load struct {
	// Kind is what is created: Ats in the workload clusters, or Deployments in the home cluster that are to be copied to
	// all the others.
	Kind Kind `json:"kind"`
	// Preload is how many Ats are there before the replicas start. They are not due during the run.
	Preload int `json:"preload,omitempty"`
	// Finished is how many Ats are there that are over, before the replicas start, in a namespace of their own.
	Finished int `json:"finished,omitempty"`
	// Changes is how many changes a second the preloaded Ats get during the load. They are in a namespace of their
	// own and suspended, so each change causes a reconcile that does nothing.
	Changes  float64  `json:"changes,omitempty"`
	Arrivals Arrivals `json:"arrivals"`
	// Count is the number of arrivals of a burst or a closed load, Rate and Duration describe the other kinds.
	Count    int      `json:"count,omitempty"`
	Rate     float64  `json:"rate,omitempty"`
	Duration Duration `json:"duration,omitempty"`
	// Rates are rising rates at which the load is given, one after the other, in a round each, until the Ats'
	// lateness at its 99th percentile exceeds SLO. The knee is the last rate at which it doesn't.
	Rates []float64 `json:"rates,omitempty"`
	SLO   Duration  `json:"slo,omitempty"`
	// Due says when an At is due: at its arrival, or all together after the last was created.
	Due Due `json:"due"`
	// Edit makes each At be created this long before its arrival, with a due time far away. The arrival is the edit
	// that makes it due.
	Edit Duration `json:"edit,omitempty"`
	// Delete removes each At once it is DONE.
	Delete bool `json:"delete,omitempty"`
	// DriftEvery is the time between two changes of copies in the step drift.
	DriftEvery Duration `json:"driftEvery,omitempty"`
	// Clients is how many requests of the generator may be in flight, and how many Ats of a closed load.
	Clients int    `json:"clients"`
	Seed    uint64 `json:"seed"`
}

// Step is something that happens during the load.
type Step struct {
	After Duration `json:"after"`
	Do    Action   `json:"do"`
}

// Threshold is what must hold of a figure of the report.
type Threshold struct {
	// Figure is a dotted path, as in results.queue_latency_ms.p99 or ratios.throughput_per_s/floor.value.
	Figure string   `json:"figure"`
	Max    *float64 `json:"max,omitempty"`
	Min    *float64 `json:"min,omitempty"`
	// Sizes it holds for; all, if empty.
	Sizes []string `json:"sizes,omitempty"`
	// Why says where the number comes from.
	Why string `json:"why"`
}

// For reports whether the threshold is one for this size.
func (t Threshold) For(size string) bool { return len(t.Sizes) == 0 || slices.Contains(t.Sizes, size) }

type (
	// Kind is a kind of object.
	Kind string
	// Arrivals is a kind of arrival process.
	Arrivals string
	// Due says when Ats are due.
	Due string
	// Storage says where etcd keeps its data.
	Storage string
	// Action is what a step does.
	Action string
	// Reference is what a fleet is compared with.
	Reference string
	// Noise is what is wrong with the last cluster, or what comes from it.
	Noise string
)

// The values of these.
const (
	Ats         Kind = "ats"
	Deployments Kind = "deployments"

	Burst    Arrivals = "burst"    // all at once
	Constant Arrivals = "constant" // at equal distances
	Poisson  Arrivals = "poisson"  // independent of one another
	Closed   Arrivals = "closed"   // one whenever another is DONE, so that load.clients are under way at all times
	Nothing  Arrivals = "none"     // the fleet is left alone for the duration

	DueNow      Due = "now"
	DueTogether Due = "together"

	Memory Storage = "memory"
	Disk   Storage = "disk"

	Join         Action = "join"          // one more replica
	Leave        Action = "leave"         // one replica is asked to end
	Kill         Action = "kill"          // one replica is killed
	Restart      Action = "restart"       // all replicas in turn: asked to end, started anew
	PauseCluster Action = "pause-cluster" // the last workload cluster accepts requests and never answers
	Resume       Action = "resume-cluster"
	// Drift has a stranger change every copy of every Deployment, one after the other.
	Drift Action = "drift"
	// Start starts the fleet; without such a step it runs before the load begins.
	Start Action = "start"

	Floor     Reference = "floor"     // a bare client that does the minimum of writes
	Floors    Reference = "floors"    // the same as so many processes as there are replicas, each with its part of the Ats
	Stock     Reference = "stock"     // the same reconcilers under plain leader election
	Client    Reference = "client"    // sharded, watches filtered on arrival only
	Identical Reference = "identical" // the same once more: what differs is noise
	Slow      Reference = "slow"      // the same with injected work made longer by fleet.slowdown
	// the same, with a second set of as many replicas: that set serves the last (or noisy) clusters, the first set
	// the others
	Apart Reference = "apart"
	// the same, with preloaded Ats that are over: load.changes cost the API server the same, and the fleet is sent none
	Unserved Reference = "unserved"

	Quiet          Noise = "none"            // nothing: what differs is noise of the machine
	Late           Noise = "late"            // requests are answered 2.5 s late
	Silent         Noise = "silent"          // nothing is answered, and watches are silent
	Failing        Noise = "failing"         // 500 to all requests but watches
	HalfThrottling Noise = "throttling-half" // 429 with Retry-After to half of them
	Throttling     Noise = "throttling"      // 429 with Retry-After to all
	Forbidding     Noise = "forbidding"      // 403 to all
	Resetting      Noise = "resetting"       // every exchange is cut, watches too
	Dripping       Noise = "dripping"        // answers come byte by byte, 20 ms apart
	Mixed          Noise = "mixed"           // of several clusters, each in the next of the ways above
	Backlog        Noise = "backlog"         // a number of Ats are due at once
	// the cluster was taken from its fleet, and is added with a number of Ats that are due
	Added Noise = "added"
)

// Noises lists all noises.
func Noises() []Noise {
	return []Noise{Quiet, Late, Silent, Failing, HalfThrottling, Throttling, Forbidding, Resetting, Dripping,
		Mixed, Backlog, Added}
}

// Duration is a time.Duration that is written as in "1.5s".
type Duration time.Duration

// UnmarshalJSON reads a text such as "1.5s".
func (d *Duration) UnmarshalJSON(data []byte) error {
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return fmt.Errorf("%s is not a duration such as \"1.5s\"", data)
	}
	value, err := time.ParseDuration(text)
	if err != nil {
		return fmt.Errorf("%q is not a duration such as \"1.5s\"", text)
	}
	*d = Duration(value)
	return nil
}

// MarshalJSON writes it as it is read.
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(d).String()) }

func (d Duration) String() string { return time.Duration(d).String() }

// D is the standard library's form.
func (d Duration) D() time.Duration { return time.Duration(d) }
