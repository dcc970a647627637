package shardtest

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// FaultKind is one way in which the world is unkind.
type FaultKind uint8

const (
	Crash         FaultKind = iota // the process dies; it comes back after For, or never if that is 0
	Pause                          // the process takes no step for a while (SIGSTOP); its clocks go on
	Sleep                          // the machine sleeps: as a pause, but the monotonic clock stands still
	Jump                           // the wall clock is set, by For
	Cut                            // nothing passes to the store and back; N: 0 both ways, 1 only requests, 2 only answers
	Freeze                         // the watch of stream N shows nothing; Relist: it then begins anew with a list
	HomeAway                       // no process reaches the store
	Exit                           // the process is told to stop; it comes back after For, or never if that is 0
	LoseRequest                    // the Nth request of the process never arrives
	LoseReply                      // the Nth request is carried out, the answer is lost
	Late                           // the Nth request arrives For after the process gave it up
	Repeat                         // the Nth request arrives a second time, For later
	Refuse                         // the Nth request is refused for a reason that has nothing to do with the record
	ReadFails                      // the Nth request is refused, and the live read that follows it fails
	SlowWarm                       // caches that the process begins to build take For
	SlowDrain                      // reconciles that run take For to end
	DeleteLease                    // a user deletes the process's lease or, if N is odd, only puts a label on it
	DeleteShard                    // a user deletes the record of shard N
	Replace                        // a user deletes the record of shard N and makes it anew at once
	RemoveCluster                  // cluster N goes; it comes back after For, or never if that is 0
	PinShard                       // a user pins shard N to the process
	ReportLoad                     // the holder of shard N measures a load of For per second
	CrashLeader                    // the coordinator's process dies, as with Crash
	Misreport                      // a Pod's status that proves nothing about the process: see misreports
	// the process can't reach the API server of cluster N for a while, or ever again if For is 0
	Unreach
	// caches of cluster N that the process begins to build, or is building, aren't filled for a while
	HangWarm
	SlowHome // the store takes N twentieths of a lease longer for everything
	Refusing // the store refuses writes; N: see the type refusal
	// no watch of the process (of any process if N is 0) shows anything; if N is 2, its live lists fail, too
	Deaf
	// the store is set back to what it was For ago; N odd: its versions go on above all that were used
	Restore
	Rebuild       // the store is set up anew, empty; N odd: its versions go on
	LoseLeases    // all leases are deleted; N odd: the lead record, too
	LoseRecords   // all shards' records are deleted
	ForeignShard  // a user makes a record that overlaps that of shard N: of the parent or of a child
	DeleteLayout  // a user deletes the layout of cluster N
	EditLayout    // a user makes another layout of cluster N, of the next generation
	ReplaceLayout // a user deletes the layout of cluster N and makes another of the same generation
	RemakeCluster // cluster N is made anew under its old name
	// the process comes back after For as this version or, N odd, the previous one; N 2 or 3: it crashed
	Upgrade
	// the names of cluster N and the next one are exchanged; processes learn that of one name after the other
	Exchange
	faultKinds
)

func (k FaultKind) String() string {
	return [...]string{
		"crash", "pause", "sleep", "jump", "cut", "freeze", "home-away", "exit", "lose-request", "lose-reply", "late",
		"repeat", "refuse", "read-fails", "slow-warm", "slow-drain", "delete-lease", "delete-shard", "replace-shard",
		"remove-cluster", "pin", "load", "crash-leader", "misreport", "unreach", "hang-warm",
		"slow-home", "refusing", "deaf",
		"restore", "rebuild", "lose-leases", "lose-records",
		"foreign-shard", "delete-layout", "edit-layout", "replace-layout",
		"remake-cluster", "upgrade", "exchange",
	}[k]
}

// MarshalText returns the kind's name.
func (k FaultKind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText takes the name of a kind.
func (k *FaultKind) UnmarshalText(name []byte) error {
	for *k = 0; *k < faultKinds; *k++ {
		if k.String() == string(name) {
			return nil
		}
	}
	return fmt.Errorf("%q is no kind of fault", name)
}

// drawnKinds is the number of kinds that drawFaults chooses from. Later kinds are drawn apart, so that a seed keeps
// its schedule.
const drawnKinds = RemakeCluster + 1

// Fault is one entry of a schedule. The constants of [FaultKind] describe what its fields mean for each kind.
type Fault struct {
	Kind   FaultKind
	At     time.Duration `json:",omitempty"`
	Node   int           `json:",omitempty"`
	For    time.Duration `json:",omitempty"`
	N      int           `json:",omitempty"`
	Relist bool          `json:",omitempty"` // or another choice between two
	felt   bool          // in a run: it has had an effect
}

// labels reports whether the fault is a DeleteLease that only labels the lease.
func (f Fault) labels() bool { return f.Kind == DeleteLease && f.N%2 == 1 }

func (f Fault) String() string {
	kind := f.Kind.String()
	if f.labels() {
		kind = "label-lease"
	}
	text := fmt.Sprintf("%s of %c", kind, 'a'+rune(f.Node))
	if f.Kind.onRequest() {
		return fmt.Sprintf("%s, request %d, for %v", text, f.N, f.For)
	}
	return fmt.Sprintf("%s at %v for %v (%d)", text, f.At, f.For, f.N)
}

// onRequest reports whether faults of this kind strike a request, by its number. The others strike at a time.
func (k FaultKind) onRequest() bool { return k >= LoseRequest && k <= ReadFails }

// Schedule is everything that is chosen before a run. Together with the code it determines the run.
type Schedule struct {
	Seed     uint64
	Nodes    int
	Bits     []int           // per cluster: its shards are 2^bits
	Joins    []time.Duration // when each node starts
	Rates    []float64       // each node's clock rate
	Faults   []Fault         // by time
	Faulty   time.Duration   // faults begin before this time, and most end before it
	Lag      time.Duration   // the most that a watch lags when nothing is wrong
	Kubelets bool            `json:",omitempty"` // kubelets report the ends of processes
	Counts   bool            `json:",omitempty"` // a new cluster gets as many shards as its coordinator counts it to need
	LongRun  bool            `json:",omitempty"` // go on until balance and quiet can be judged
	Stale    bool            `json:",omitempty"` // a restarted process may list what was true a little earlier
	Previous []bool          `json:",omitempty"` // which nodes begin as the previous version; see [Upgrade]
	Fill     time.Duration   `json:",omitempty"` // how long every process needs to fill a shard's caches; 0 for moments
}

// meddled reports whether shard records are deleted.
func (s *Schedule) meddled() bool {
	return slices.ContainsFunc(s.Faults, func(f Fault) bool {
		return f.Kind == DeleteShard || f.Kind == Replace || f.Kind == Rebuild || f.Kind == LoseRecords
	})
}

// deletes reports whether users delete leases.
func (s *Schedule) deletes() bool {
	return slices.ContainsFunc(s.Faults, func(f Fault) bool { return f.Kind == DeleteLease && !f.labels() })
}

// divided reports whether users change layouts, or names get other clusters.
func (s *Schedule) divided() bool {
	return s.has(Exchange) ||
		slices.ContainsFunc(s.Faults, func(f Fault) bool { return f.Kind >= DeleteLayout && f.Kind <= RemakeCluster })
}

// Timings of the simulated fleet: the defaults.
const (
	leaseDuration = 10 * time.Second
	// maxDrift is how far a clock's rate may be off. The margin, a fifth of the lease, covers two such clocks, since
	// (1-maxDrift)/(1+maxDrift) > 1-1/5. The protocol promises nothing for larger drifts.
	maxDrift = 0.1
)

// NewSchedule draws a schedule. The same seed draws the same one for ever, as long as this function isn't changed.
func NewSchedule(seed uint64) Schedule {
	rng := rand.New(rand.NewPCG(seed, 0x7e4e))
	s := Schedule{
		Seed:   seed,
		Nodes:  2 + rng.IntN(3),
		Faulty: time.Duration(10+rng.IntN(25)) * time.Second,
		Lag:    time.Duration(2+rng.IntN(30)) * time.Millisecond,
	}
	for range 1 + rng.IntN(2) {
		s.Bits = append(s.Bits, rng.IntN(3))
	}
	if rng.IntN(20) == 0 { // few are large: they cost what dozens of small ones do
		s.Nodes, s.Bits = 8, []int{6}
	}
	if rng.IntN(3) == 0 {
		s.Lag = 400 * time.Millisecond
	}
	_, _ = rng.IntN(3), rng.IntN(4) // unused by now, but drawn so that a seed keeps its schedule
	s.LongRun = rng.IntN(4) == 0
	for range s.Nodes {
		join := time.Duration(rng.IntN(500)) * time.Millisecond
		if rng.IntN(3) == 0 {
			join = time.Duration(rng.Int64N(int64(s.Faulty) / 2))
		}
		s.Joins = append(s.Joins, join)
		rate := 1.0
		if rng.IntN(2) == 0 {
			rate = 1 + maxDrift*(2*rng.Float64()-1)
			if rng.IntN(3) == 0 {
				rate = 1 + maxDrift*float64(2*rng.IntN(2)-1)
			}
		}
		s.Rates = append(s.Rates, rate)
	}
	s.drawFaults(rng)
	s.Kubelets = rng.IntN(3) == 0
	s.Counts = rng.IntN(3) == 0
	if rng.IntN(8) == 0 && !s.has(ForeignShard) { // the previous version may serve a foreign shard
		s.drawVersions(rng)
	}
	if rng.IntN(100) == 0 && !s.mixes() && s.Nodes < 8 { // few, since they run for long
		s.Fill = leaseDuration + time.Duration(rng.Int64N(int64(40*leaseDuration)))
	}
	for i := range s.Faults { // drawn late, so that a seed keeps the rest of its schedule
		if f := &s.Faults[i]; f.Kind == RemoveCluster {
			switch rng.IntN(3) {
			case 0:
				f.For = 0
			case 1:
				f.For = s.Faulty // long enough for its records to be cleared
			}
		}
	}
	if len(s.Bits) > 1 && !s.mixes() && !s.has(DeleteLayout) && rng.IntN(8) == 0 {
		for range 1 + rng.IntN(3) {
			s.Faults = append(s.Faults, s.drawFault(rng, Exchange))
		}
		s.sortFaults()
	}
	return s
}

// mixes reports whether processes of the previous version may run.
func (s *Schedule) mixes() bool { return slices.Contains(s.Previous, true) || s.has(Upgrade) }

// drawVersions lets some nodes begin as the previous version, and upgrades and rolls back at random times. Half of the
// rollouts are brought to an end.
func (s *Schedule) drawVersions(rng *rand.Rand) {
	upgrade := func(node, n int, after time.Duration) time.Duration {
		at := after + time.Duration(rng.Int64N(int64(s.Faulty-after)))
		back := 1 + time.Duration(rng.Int64N(int64(leaseDuration)))
		if rng.IntN(2) == 0 {
			back /= 20 // as when a Pod is replaced
		}
		s.Faults = append(s.Faults, Fault{Kind: Upgrade, Node: node, At: at, For: back, N: n + 2*(rng.IntN(4)/3)})
		return at
	}
	ends := rng.IntN(2) == 0
	for node := range s.Nodes {
		previous, at := rng.IntN(3) > 0, time.Duration(0)
		s.Previous = append(s.Previous, previous)
		for range rng.IntN(3) {
			at = upgrade(node, map[bool]int{true: 0, false: 1}[previous], at)
			previous = !previous
		}
		if previous && (ends || node == 0) {
			upgrade(node, 0, at)
		}
	}
	s.sortFaults()
}

// has reports whether the schedule has all those kinds of fault.
func (s *Schedule) has(kinds ...FaultKind) bool {
	return !slices.ContainsFunc(kinds, func(k FaultKind) bool {
		return !slices.ContainsFunc(s.Faults, func(f Fault) bool { return f.Kind == k })
	})
}

// drawFaults chooses a few kinds of fault and draws a few faults of each, so that each schedule has its own mix.
func (s *Schedule) drawFaults(rng *rand.Rand) {
	if rng.IntN(8) == 0 {
		return // a calm world
	}
	var kinds [drawnKinds]bool
	for range 1 + rng.IntN(6) {
		kinds[rng.IntN(int(drawnKinds))] = true
	}
	if kinds[Deaf] && rng.IntN(2) == 0 {
		kinds[Replace] = true // a deaf process must stop before a replaced record is claimed
	}
	if kinds[Sleep] {
		kinds[Jump] = false // a wall clock set back while the machine sleeps would hide that it slept
	}
	if kinds[Restore] || kinds[Rebuild] || kinds[LoseLeases] || kinds[LoseRecords] {
		kinds[Jump] = false // see Schedule.replaced
	}
	s.Stale = true
	for k := range drawnKinds {
		if !kinds[k] {
			continue
		}
		times := 1 + rng.IntN(3)
		if k.onRequest() {
			times = 1 + rng.IntN(12)
		}
		if k == Replace {
			times = 1 // the epoch of a second one made by hand is known only once a coordinator has seen the first
		}
		for range times {
			s.Faults = append(s.Faults, s.drawFault(rng, k))
		}
	}
	s.sortFaults()
}

func (s *Schedule) sortFaults() {
	slices.SortStableFunc(s.Faults, func(a, b Fault) int { return cmp.Compare(a.At, b.At) })
}

func (s *Schedule) drawFault(rng *rand.Rand, k FaultKind) Fault {
	f := Fault{Kind: k, Node: rng.IntN(s.Nodes), At: time.Duration(rng.Int64N(int64(s.Faulty)))}
	upTo := func(d time.Duration) time.Duration { return time.Duration(rng.Int64N(int64(d))) }
	rest := s.Faulty - f.At
	switch k {
	case Crash, CrashLeader, Exit:
		f.For = upTo(leaseDuration * 3 / 2)
		if f.Node > 0 && rng.IntN(3) == 0 {
			f.For = 0
		}
	case Pause, Sleep, Cut, HomeAway, Refusing:
		f.For = min(rest, upTo(leaseDuration*5/2))
		f.N = rng.IntN(3)
	case Freeze:
		f.For = min(rest, upTo(leaseDuration*2))
		f.N = rng.IntN(int(streams))
		f.Relist = rng.IntN(2) == 0
	case SlowHome:
		f.For = min(rest, upTo(leaseDuration*3))
		f.N = 1 + rng.IntN(6)
	case Deaf:
		f.At = upTo(s.Faulty / 2)
		f.For = min(s.Faulty-f.At, leaseDuration+upTo(s.Faulty-f.At))
		f.N = rng.IntN(3)
		f.Relist = rng.IntN(2) == 0
	case Jump:
		const s = time.Second
		f.For = []time.Duration{-time.Hour, -leaseDuration, -s, s, 5 * s, time.Hour}[rng.IntN(6)]
	case LoseRequest, LoseReply, Late, Repeat, Refuse, ReadFails:
		f.N = rng.IntN(60)
		f.For = upTo(leaseDuration * 3 / 2)
	case Restore:
		f.For = min(f.At, upTo(2*leaseDuration), upTo(2*leaseDuration))
		f.N = rng.IntN(2)
	case SlowWarm, SlowDrain:
		f.For = upTo(leaseDuration)
	case Unreach, HangWarm:
		f.For = min(rest, upTo(leaseDuration*2))
		f.N = rng.IntN(len(s.Bits))
		if k == HangWarm {
			f.For = min(rest, upTo(leaseDuration*6))
		} else if rng.IntN(4) == 0 {
			f.For = 0
		}
	case RemoveCluster:
		f.N = rng.IntN(len(s.Bits))
		f.For = upTo(leaseDuration)
	case ReportLoad:
		f.For = upTo(10 * time.Second)
		f.N = rng.IntN(8)
	case ForeignShard, EditLayout, ReplaceLayout:
		f.N = rng.IntN(8)
		f.Relist = rng.IntN(2) == 0
	default:
		f.N = rng.IntN(8)
	}
	return f
}
