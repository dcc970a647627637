package algorithms

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tenure-dev/tenure/shard/keyspace"
)

// Schema is the version of the table's JSON.
const Schema = "tenure.dev/bench/algorithms/v1"

// Names says how replicas are called, which matters to weak hashes.
type Names string

const (
	// Sequential names are those of a StatefulSet's Pods: tenure-0, tenure-1.
	Sequential Names = "sequential"
	// Random names are those of a Deployment's Pods: tenure-7c6d9f5b8-x7k2p.
	Random Names = "random"
)

// Config says what to compare.
type Config struct {
	// Replicas and Clusters are the sizes; every pair of them is tried.
	Replicas []int `json:"replicas"`
	Clusters []int `json:"clusters"`
	// PrefixBits makes 2^PrefixBits shards of each cluster.
	PrefixBits int   `json:"prefix_bits"`
	Names      Names `json:"names"`
	// Seed makes random names the same again.
	Seed uint64 `json:"seed"`
	// Runs is how many times each call is timed; the median is reported.
	Runs int `json:"runs"`
	// Now is the clock; nil is time.Now.
	Now func() time.Time `json:"-"`
}

// DefaultConfig is the published comparison, which takes about half a minute on
// two cores, nearly all of it rendezvous hashing at the largest sizes.
func DefaultConfig() Config {
	return Config{
		Replicas:   []int{1, 2, 3, 5, 10, 30, 100, 300, 1000},
		Clusters:   []int{1, 10, 100, 1000, 10_000},
		PrefixBits: 3,
		Names:      Sequential,
		Runs:       3,
	}
}

// Validate reports everything that is wrong.
func (c Config) Validate() error {
	var faults []error
	if len(c.Replicas) == 0 || slices.Min(c.Replicas) < 1 {
		faults = append(faults, fmt.Errorf("replicas %v: want at least one number, each 1 or more", c.Replicas))
	}
	if len(c.Clusters) == 0 || slices.Min(c.Clusters) < 1 {
		faults = append(faults, fmt.Errorf("clusters %v: want at least one number, each 1 or more", c.Clusters))
	}
	if c.PrefixBits < 0 || c.PrefixBits > keyspace.MaxBits {
		faults = append(faults, fmt.Errorf("prefix bits %d: want 0 to %d", c.PrefixBits, keyspace.MaxBits))
	}
	if c.Names != Sequential && c.Names != Random {
		faults = append(faults, fmt.Errorf("names %q: want %q or %q", c.Names, Sequential, Random))
	}
	if c.Runs < 1 {
		faults = append(faults, fmt.Errorf("runs %d: want 1 or more", c.Runs))
	}
	return errors.Join(faults...)
}

// Table is the comparison.
type Table struct {
	Schema string `json:"schema"`
	Config Config `json:"config"`
	Rows   []Row  `json:"rows"`
}

// Row is one algorithm at one size.
type Row struct {
	Algorithm string `json:"algorithm"`
	Replicas  int    `json:"replicas"`
	Clusters  int    `json:"clusters"`
	Shards    int    `json:"shards"`
	// MaxOverMean is the most shards that a replica has over the mean, and
	// BestMaxOverMean the least that this can be with whole shards.
	MaxOverMean     float64 `json:"max_over_mean"`
	BestMaxOverMean float64 `json:"best_max_over_mean"`
	// Idle is how many replicas have nothing.
	Idle        int     `json:"idle"`
	PlaceMillis float64 `json:"place_ms"`
	Join        Change  `json:"join"`
	// Leave is nil for a fleet of one replica, since none would remain.
	Leave *Change `json:"leave,omitempty"`
}

// Change is what one replica more or less costs.
type Change struct {
	// Moves is how many shards change their replica, and Minimal how many have to.
	Moves   int `json:"moves"`
	Minimal int `json:"minimal"`
	// MaxOverMean is the balance afterwards.
	MaxOverMean float64 `json:"max_over_mean"`
	Millis      float64 `json:"ms"`
}

// Run compares all algorithms at all sizes.
func Run(ctx context.Context, config Config) (Table, error) {
	if err := config.Validate(); err != nil {
		return Table{}, fmt.Errorf("comparing algorithms: %w", err)
	}
	table := Table{Schema: Schema, Config: config}
	for _, clusters := range config.Clusters {
		keys := newKeys(clusters, config.PrefixBits)
		for _, replicas := range config.Replicas {
			names := config.replicaNames(replicas + 1)
			for _, algorithm := range All() {
				if err := ctx.Err(); err != nil {
					return Table{}, fmt.Errorf("comparing %s with %d replicas and %d clusters: %w",
						algorithm.Name, replicas, clusters, err)
				}
				row := config.compare(algorithm, keys, names)
				row.Clusters = clusters
				table.Rows = append(table.Rows, row)
			}
		}
	}
	return table, nil
}

// compare takes one algorithm through a start, a join and a leave. The last name
// is the joiner's.
func (c Config) compare(algorithm Algorithm, keys []Key, names []string) Row {
	replicas := names[:len(names)-1]
	empty := slices.Repeat([]int32{nowhere}, len(keys))
	places, placeMillis := c.timed(algorithm, keys, replicas, empty)
	row := Row{
		Algorithm: algorithm.Name, Replicas: len(replicas), Shards: len(keys), PlaceMillis: placeMillis,
	}
	counts := countPlaces(places, len(replicas))
	row.MaxOverMean = maxOverMean(counts)
	row.BestMaxOverMean = overMean((len(keys)+len(replicas)-1)/len(replicas), len(keys), len(replicas))
	for _, n := range counts {
		if n == 0 {
			row.Idle++
		}
	}

	row.Join = c.change(algorithm, keys, names, places)
	row.Join.Minimal = len(keys) / len(names)
	if len(replicas) == 1 {
		return row
	}
	leaver := len(replicas) / 2
	left := slices.Delete(slices.Clone(replicas), leaver, leaver+1)
	renumbered := slices.Clone(places)
	for i, at := range places {
		switch {
		case at == int32(leaver):
			renumbered[i] = nowhere
		case at > int32(leaver):
			renumbered[i]--
		}
	}
	leave := c.change(algorithm, keys, left, renumbered)
	leave.Minimal = counts[leaver]
	row.Leave = &leave
	return row
}

// change places the keys anew and counts those that end up elsewhere.
func (c Config) change(algorithm Algorithm, keys []Key, replicas []string, before []int32) Change {
	places, millis := c.timed(algorithm, keys, replicas, before)
	change := Change{Millis: millis, MaxOverMean: maxOverMean(countPlaces(places, len(replicas)))}
	for i := range places {
		if places[i] != before[i] {
			change.Moves++
		}
	}
	return change
}

func (c Config) timed(algorithm Algorithm, keys []Key, replicas []string, before []int32) ([]int32, float64) {
	now := c.Now
	if now == nil {
		now = time.Now
	}
	d := algorithm.prepare(keys, replicas, before)
	millis := make([]float64, c.Runs)
	for i := range millis {
		start := now()
		d.decide()
		millis[i] = now().Sub(start).Seconds() * 1000
	}
	slices.Sort(millis)
	return d.places(), millis[len(millis)/2]
}

func countPlaces(places []int32, replicas int) []int {
	counts := make([]int, replicas)
	for _, at := range places {
		counts[at]++
	}
	return counts
}

func maxOverMean(counts []int) float64 {
	keys := 0
	for _, n := range counts {
		keys += n
	}
	return overMean(slices.Max(counts), keys, len(counts))
}

func overMean(count, keys, replicas int) float64 {
	return float64(count) * float64(replicas) / float64(keys)
}
