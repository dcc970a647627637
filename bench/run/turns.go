package run

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/tenure-dev/tenure/bench/report"
	"github.com/tenure-dev/tenure/bench/samples"
	"github.com/tenure-dev/tenure/test/lab"
)

// settle is how much of the beginning of a turn isn't measured: until then what the turn before has left is sent.
const settle = 300 * time.Millisecond

// serversShare is the part of the processor time that the servers take. If only the replicas have more to do in one
// kind of turn, the ratio of the shares shows how much more processor time is used in all. It doesn't depend on the
// machine's speed at that moment.
const serversShare = "servers_cpu_share"

// turns measures one fleet that traces nothing, some and all in turns of seconds. Fleets beside each other have API
// servers of their own, which differ by a few percent for as long as they live, and rounds differ by how fast the
// machine happens to be: neither can be told from a cost of one percent.
type turns struct {
	fleet   *fleet
	length  time.Duration
	servers map[string]int // their processes
	taken   []taken
	err     error
}

// taken is the measured part of a turn.
type taken struct {
	samples.Turn
	from, to          time.Time
	replicas, servers time.Duration // processor time used
}

// run measures turn by turn until the context ends.
func (t *turns) run(ctx context.Context) {
	for t.err == nil {
		turn := samples.TurnAt(time.Now(), t.length, len(samples.TracingTurns))
		begin := turn.From.Add(settle)
		if time.Now().After(begin) { // missed
			begin = turn.To
		}
		if lab.Sleep(ctx, time.Until(begin)) != nil {
			return
		}
		if begin.Equal(turn.To) {
			continue
		}
		one := taken{Turn: turn, from: time.Now()}
		replicas, servers, err := t.used()
		if lab.Sleep(ctx, time.Until(turn.To)) != nil {
			return
		}
		one.to = time.Now()
		var errAfter error
		one.replicas, one.servers, errAfter = t.used()
		one.replicas -= replicas
		one.servers -= servers
		t.err = errors.Join(err, errAfter)
		t.taken = append(t.taken, one)
	}
}

// used is the processor time used so far.
func (t *turns) used() (replicas, servers time.Duration, err error) {
	own, err := t.fleet.uses()
	if err != nil {
		return 0, 0, err
	}
	theirs, err := usesOf(t.servers)
	for _, u := range own {
		replicas += u.CPU
	}
	for _, u := range theirs {
		servers += u.CPU
	}
	return replicas, servers, err
}

// rounds makes a round of each turn in which the fleet was busy throughout, by what was traced. Only whole lots count,
// so that what stands in the same place of two lists happened at about the same time. The ends of reconciles are
// sorted.
func (t *turns) rounds(ends []time.Time) map[string][]report.Round {
	if len(ends) == 0 {
		return nil
	}
	first, last := ends[len(ends)/10], ends[len(ends)*9/10]
	lots := map[int64]map[string]report.Round{}
	for _, one := range t.taken {
		if one.from.Before(first) || one.to.After(last) {
			continue
		}
		begin, _ := slices.BinarySearchFunc(ends, one.from, time.Time.Compare)
		end, _ := slices.BinarySearchFunc(ends, one.to, time.Time.Compare)
		if end == begin {
			continue
		}
		n, seconds := float64(end-begin), one.to.Sub(one.from).Seconds()
		if lots[one.Lot] == nil {
			lots[one.Lot] = map[string]report.Round{}
		}
		lots[one.Lot][samples.TracingTurns[one.Slot].Name] = report.Round{Seconds: seconds, Figures: map[string]float64{
			"reconciles_per_s":                 n / seconds,
			"cpu_seconds_per_reconcile":        one.replicas.Seconds() / n,
			"server_cpu_seconds_per_reconcile": one.servers.Seconds() / n,
			serversShare:                       one.servers.Seconds() / (one.servers + one.replicas).Seconds(),
		}}
	}
	out := map[string][]report.Round{}
	for _, lot := range slices.Sorted(maps.Keys(lots)) {
		if len(lots[lot]) < len(samples.TracingTurns) {
			continue
		}
		for name, round := range lots[lot] {
			out[name] = append(out[name], round)
		}
	}
	return out
}
