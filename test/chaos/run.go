package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/tenure-dev/tenure/bench/machine"
	"github.com/tenure-dev/tenure/test/lab"
)

// settings are those of a run, from the flags.
type settings struct {
	seed      uint64
	bound     time.Duration
	faults    int
	moves     int
	calm      int
	untidy    int
	kinds     *regexp.Regexp // of untidy faults
	rate      float64
	lease     time.Duration
	replicas  int
	shards    int
	ballast   int
	handoffs  int
	scenarios []string
	tenure    string
	flags     []string // of the replicas
	keep      bool
	lenient   bool
	quiet     time.Duration
	// patience bounds the waits for the fleet to be at rest and for one more At to be DONE; backoffs of a minute may be
	// pending. slack is a factor for all targets.
	patience time.Duration
	slack    float64
}

// fault is one thing that was done to the fleet.
type fault struct {
	Kind   string
	Victim string
	Start  time.Time
	End    time.Time
	// Rule is what was injected into the network. Sign is what shows, seen from outside, that any other fault took effect.
	// Hits is the number of requests that the rule hit, or of such signs; Of is how many of them there must be, 0 for one.
	Rule, Sign string
	Hits, Of   int
	// Server says that an API server was restarted, lagged or stood still, which affects all replicas.
	Server bool
	// Tenures of the victim of a crash or clean exit, as shard -> epoch.
	Tenures map[string]int64
	Calm    bool // nothing else was going on
	// Since is when the fleet could cope with an untidy fault, Lifted when the fault's cause had ended.
	Since, Lifted time.Time
}

// tookEffect reports whether as many signs of the fault were seen as there must be. A fault without them counts for no
// quota, and fails the run.
func (f fault) tookEffect() bool { return f.Hits >= max(1, f.Of) }

// Kinds of faults that the code looks for by name.
const (
	started = "start" // a calm start of a replica: not a fault, but it can affect Ats
	paused  = "SIGSTOP/SIGCONT"
	hogged  = "CPU hog"
	crowded = "all replicas start, or leave" // not a fault either, but nothing is calm then
	stalled = "stall of the machine"         // nor this, but nothing ran
)

// run is one run of chaos.
type run struct {
	settings
	fleet     *lab.Fleet
	load      *load
	out       io.Writer
	began     time.Time
	machine   machine.Times // when it began
	deadline  time.Time
	starting  sync.Mutex // held while a replica is looked for and started
	evidence  evidence
	before    int            // processes that were started on these planes before this run
	snapshots []snapshot     // of home, in order
	disturb   time.Duration  // how long each untidy fault slows home down, or has it refuse writes
	last      []*lab.Replica // that lived when the load had ended
	rested    time.Time      // since when nothing is done

	mu     sync.Mutex // guards all below
	rand   *rand.Rand
	faults []fault
	broken []error  // violations found while running
	deaths []string // logs of replicas that ended by themselves
	calm   bool
	// staysUp: nothing that is done in this scenario is a reason for a replica to end by itself.
	staysUp bool
	calms   []window // when calm scenarios ran
	quotas  []quota
	crowds  []fault
}

func newRun(s settings, f *lab.Fleet, out io.Writer) *run {
	r := &run{
		settings: s, fleet: f, out: out, began: time.Now(), deadline: time.Now().Add(s.bound),
		rand:     rand.New(rand.NewPCG(s.seed, 2)),
		load:     &load{fleet: f, rate: s.rate, rand: rand.New(rand.NewPCG(s.seed, 3))},
		evidence: evidence{dir: f.Planes.Dir()}, before: len(f.Replicas()),
	}
	r.machine, _ = machine.Now()
	// Deleting Ats and their Pods is work for the API servers, too, so only the longest run does.
	if slices.Contains(s.scenarios, "storm") || slices.Contains(s.scenarios, "moves") ||
		slices.Contains(s.scenarios, untidy) {
		r.load.ttl = new(int32(keepFinished))
	}
	return r
}

// processes are all that this run started.
func (r *run) processes() []*lab.Replica { return r.fleet.Replicas()[r.before:] }

func (r *run) say(format string, args ...any) {
	fmt.Fprintf(r.out, "%7.1fs  %s\n", time.Since(r.began).Seconds(), fmt.Sprintf(format, args...))
}

// note records a fault, which ends now. One that the end of the run kept from taking effect is left out.
func (r *run) note(ctx context.Context, f fault) {
	without := ""
	if !f.tookEffect() {
		if ctx.Err() != nil {
			return
		}
		without = ", WITHOUT EFFECT"
	}
	f.End = time.Now()
	r.mu.Lock()
	f.Calm = r.calm
	r.faults = append(r.faults, f)
	n := len(r.faults)
	r.mu.Unlock()
	r.say("%d: %s %s (%v)%s", n, f.Kind, f.Victim, f.End.Sub(f.Start).Round(10*time.Millisecond), without)
}

// crowd records that all replicas started, or left, since a moment: both keep all processors busy.
func (r *run) crowd(since time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.crowds = append(r.crowds, fault{Kind: crowded, Victim: "all", Start: since, End: time.Now()})
}

// done counts the faults that took effect.
func (r *run) done() (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range r.faults {
		if f.tookEffect() {
			n++
		}
	}
	return n
}

// blame keeps an error that makes the run fail in the end; the run goes on to see more.
func (r *run) blame(err error) {
	if all, ok := err.(interface{ Unwrap() []error }); ok && all != nil {
		for _, one := range all.Unwrap() {
			r.blame(one)
		}
		return
	}
	if err == nil || errors.Is(err, context.Canceled) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.say("BROKEN: %v", err)
	r.broken = append(r.broken, err)
}

func (r *run) isBroken() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.broken) > 0
}

func (r *run) intN(n int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.rand.IntN(n)
}

// between returns a random duration between two.
func (r *run) between(low, high time.Duration) time.Duration {
	return low + time.Duration(r.intN(int(high-low)))
}

// victim returns a living replica, chosen at random; nil if there is none.
func (r *run) victim() *lab.Replica {
	alive := r.fleet.Alive()
	if len(alive) == 0 {
		return nil
	}
	return alive[r.intN(len(alive))]
}

// coordinator returns the replica that coordinates; nil if there is none, or home can't say.
func (r *run) coordinator(ctx context.Context) *lab.Replica {
	name, err := r.fleet.Coordinator(ctx)
	if err != nil {
		return nil
	}
	for _, replica := range r.fleet.Alive() {
		if replica.Name == name {
			return replica
		}
	}
	return nil
}

// tenures returns what a replica holds now, as shard -> epoch; nil if the records can't be read.
func (r *run) tenures(ctx context.Context, replica string) map[string]int64 {
	shards, err := r.fleet.Shards(ctx)
	if err != nil {
		return nil // the API server is away: nothing to measure by
	}
	held := map[string]int64{}
	for i := range shards {
		if lab.ReplicaOf(shards[i].Status.Holder) == replica {
			held[lab.ShardName(&shards[i])] = shards[i].Status.Epoch
		}
	}
	return held
}

// start starts a replica again under its name, unless a process of that name runs already. If a replica ended by
// itself just before a fault was to end it, both the supervisor and the fault want to start it again.
func (r *run) start(name string) {
	r.starting.Lock()
	defer r.starting.Unlock()
	if slices.ContainsFunc(r.processes(), func(p *lab.Replica) bool { return p.Name == name && !p.Ended() }) {
		return
	}
	_, err := r.fleet.StartReplica(name, r.flags...)
	r.blame(err)
}

// settle waits until everything is at rest.
func (r *run) settle(ctx context.Context, within time.Duration) {
	if ctx.Err() == nil {
		if err := r.fleet.AwaitSettled(ctx, min(within, r.patience)); ctx.Err() == nil {
			r.blame(err)
		}
	}
}

// sleep waits unless the run is over.
func sleep(ctx context.Context, d time.Duration) { _ = lab.Sleep(ctx, d) }
