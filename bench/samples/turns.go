package samples

import (
	"math/rand/v2"
	"time"
)

// Turn is a slice of time that belongs to one of several that take turns.
type Turn struct {
	Lot  int64 // a lot has one turn of each
	Slot int   // whose turn it is, from 0
	// From and To bound it.
	From, To time.Time
}

// TurnAt returns the turn at a time. Several things take turns, as many as among says, each for a length of time.
// The order within a lot is random, so that events that recur favour none of them. Processes on one machine compute
// the same turns without communicating.
func TurnAt(at time.Time, length time.Duration, among int) Turn {
	n := at.UnixNano() / int64(length)
	lot, place := n/int64(among), int(n%int64(among))
	from := time.Unix(0, n*int64(length))
	order := rand.New(rand.NewPCG(uint64(lot), 0)).Perm(among)
	return Turn{Lot: lot, Slot: order[place], From: from, To: from.Add(length)}
}

// TracingTurns are what replicas do in the turns of --bench-tracing-turns: the share of reconciles that they trace.
var TracingTurns = []struct {
	Name  string
	Ratio float64
}{{Untraced, 0}, {"sampled", .01}, {"traced", 1}}

// Untraced is the name of the turns in which nothing is traced.
const Untraced = "untraced"
