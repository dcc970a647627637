package ownership

import "time"

// WireTime is how long a write that was never answered is taken to be on its way to the API server. How long it really
// is can't be known: if it arrives later, its own preconditions stop it.
const WireTime = time.Second

// Config sets one replica's identity and timings. All replicas of a fleet should use the same LeaseDuration.
type Config struct {
	ID      Incarnation // unique to this life of the process
	Replica string      // the process's stable name
	Build   string      // version of the program
	Kinds   string      // the kinds of objects that the program shards, sorted and separated by commas
	Weight  int         // share of the work; 0 means 1
	// Container identifies the container that the process runs in; "" if it isn't known.
	Container string

	// LeaseDuration is how long a silent replica keeps its shards. It bounds how long keys are unserved after a crash.
	LeaseDuration time.Duration
	// Margin is how long before its lease runs out the replica stops by itself. It allows for clocks that run at
	// different rates.
	Margin time.Duration
	// RenewEvery is the time between two renewals, a quarter of LeaseDuration by default.
	RenewEvery time.Duration
	// RetryEvery is the wait before the first repeat of a write that had no result. It doubles with each repeat.
	RetryEvery time.Duration
	// Random returns numbers in [0, 1), which spread repeats in time. Nil disables spreading.
	Random func() float64
	// WarmTimeout is how long an orphan waits for the replica that should claim it. Then the coordinator names another.
	WarmTimeout time.Duration
	// LeaveTimeout is how long a leaving replica goes on serving a shard while its successor warms. Then it hands off
	// to a cold successor, and the shard is unserved until that one is warm.
	LeaveTimeout time.Duration
	// BuryTime is how long a deleted record is neither made again nor claimed. By its end the old holder has stopped,
	// even if it was paused and never saw the deletion: it renews its lease for WatchTimeout after that, and then acts
	// for LeaseDuration - Margin.
	BuryTime time.Duration
	// WatchTimeout is how old the last instant may be up to which the watches are known to be complete. With an older
	// one, the replica doesn't renew its lease.
	WatchTimeout time.Duration
	// GatherTimeout is how long a handoff to a warm successor waits for other moves to fill their caches.
	GatherTimeout time.Duration
	// FitGrace is how long the replicas' statements about a cluster must have been unchanged before shards are moved
	// away from a replica that can't serve it. By then every replica has probed the cluster.
	FitGrace time.Duration
	// MeetTimeout is how long a coordinator makes no moves for balance while records name clusters that it hasn't met.
	MeetTimeout time.Duration
	// FillTimeout is how long a warm-up may take. After that the replica takes no more shards of the cluster for a
	// while, and gives this one back if another replica can serve it. It doubles with each warm-up that takes longer.
	FillTimeout time.Duration
	// ObjectsPerShard is the most objects that a new cluster's shards may have, on average, when it is divided. The
	// cluster gets the fewest shards for that, at most the number that [Clusters] allows; 0 gives it that number.
	ObjectsPerShard int64
	// PlanEvery is the least time between two runs of the planner. With thousands of shards it is longer: 10 µs for each
	// up to a quarter of a second, and 5 µs for each where that is more.
	PlanEvery time.Duration
	// ReportEvery is the time between two reports of a shard's size and load. There is one such write at a time for all
	// shards held.
	ReportEvery time.Duration
}

// DefaultConfig derives all timings from the lease duration.
func DefaultConfig(id Incarnation, replica string, lease time.Duration) Config {
	return Config{
		ID:            id,
		Replica:       replica,
		LeaseDuration: lease,
		Margin:        lease / 5,
		RenewEvery:    lease / 4,
		RetryEvery:    lease / 40,
		WarmTimeout:   lease / 4,
		LeaveTimeout:  2 * lease,
		BuryTime:      lease * 5 / 2,
		WatchTimeout:  lease * 6 / 5,
		GatherTimeout: lease / 2,
		FitGrace:      3*time.Second + lease/10,
		MeetTimeout:   2 * lease,
		FillTimeout:   3 * lease,
		PlanEvery:     10 * time.Millisecond,
		ReportEvery:   lease,
	}
}
