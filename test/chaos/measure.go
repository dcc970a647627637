package main

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/tenure-dev/tenure/bench/witness"
	"github.com/tenure-dev/tenure/test/lab"
)

// spread sums a set of durations up.
type spread struct {
	N             int
	P50, P99, Max time.Duration
}

func spreadOf(ds []time.Duration) spread {
	if len(ds) == 0 {
		return spread{}
	}
	slices.Sort(ds)
	at := func(q float64) time.Duration { return ds[min(len(ds)-1, int(q*float64(len(ds))))] }
	return spread{N: len(ds), P50: at(0.50), P99: at(0.99), Max: ds[len(ds)-1]}
}

func (s spread) String() string {
	if s.N == 0 {
		return "none"
	}
	ms := func(d time.Duration) string { return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000) }
	return fmt.Sprintf("n %d, p50 %s, p99 %s, max %s", s.N, ms(s.P50), ms(s.P99), ms(s.Max))
}

// gaps are how long shards had nobody at handoffs of a kind, by the new holders' logs.
func gaps(lines []lab.Line, kind string, within func(time.Time) bool) []time.Duration {
	var all []time.Duration
	for _, l := range lines {
		if l.Kind == kind && within(l.Time) {
			all = append(all, time.Duration(l.GapMS*float64(time.Millisecond)))
		}
	}
	return all
}

// unserved are the times from a fault's start until each of the victim's shards was active in a later epoch somewhere.
func unserved(f fault, lines []lab.Line) (all []time.Duration, missing []string) {
	for shard, epoch := range f.Tenures {
		var first time.Time
		for _, l := range lines {
			if l.Shard == shard && l.Epoch > epoch && l.Time.After(f.Start) && (first.IsZero() || l.Time.Before(first)) {
				first = l.Time
			}
		}
		if first.IsZero() {
			missing = append(missing, shard)
			continue
		}
		all = append(all, first.Sub(f.Start))
	}
	return all, missing
}

// service is the first write for an At.
type service struct {
	answered time.Time
	shard    string // by whose tenure it was sent
}

// servedAt reads from a cluster's audit log when each At was served. It reads the log itself, so that no figure rests on a
// replica's word.
func servedAt(path string) (map[string]service, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("reading an audit log: %w", err)
	}
	defer file.Close()
	served := map[string]service{}
	reader := bufio.NewReaderSize(file, 1<<20)
	for {
		line, err := reader.ReadBytes('\n')
		if err == io.EOF {
			return served, nil // what follows the last newline is still being written
		}
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", path, err)
		}
		if !bytes.Contains(line, []byte(`"resource":"ats"`)) || !bytes.Contains(line, []byte(`"userAgent":"tenure/`)) {
			continue
		}
		var e struct {
			Verb      string    `json:"verb"`
			Agent     string    `json:"userAgent"`
			Time      time.Time `json:"stageTimestamp"`
			ObjectRef struct {
				Name        string `json:"name"`
				Subresource string `json:"subresource"`
			} `json:"objectRef"`
			ResponseStatus struct {
				Code int `json:"code"`
			} `json:"responseStatus"`
		}
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, fmt.Errorf("reading %s: %w", path, err)
		}
		name := e.ObjectRef.Name
		if e.ObjectRef.Subresource != "status" || e.ResponseStatus.Code != 200 || !strings.HasPrefix(name, "at-") {
			continue
		}
		if old, ok := served[name]; !ok || e.Time.Before(old.answered) {
			served[name] = service{e.Time, witness.ParseAgent(e.Agent).Shard.String()}
		}
	}
}

// lateAt is an At with how late it was.
type lateAt struct {
	madeAt
	late  time.Duration
	shard string
}

// latenessOf are the lateness alone.
func latenessOf(ats []lateAt) []time.Duration {
	ds := make([]time.Duration, len(ats))
	for i, a := range ats {
		ds[i] = a.late
	}
	return ds
}

// latest is the At that was the latest of at least one.
func latest(ats []lateAt) lateAt {
	return slices.MaxFunc(ats, func(x, y lateAt) int { return cmp.Compare(x.late, y.late) })
}

func (a lateAt) String() string { return fmt.Sprintf("%v (%s/%s)", a.late, a.cluster, a.name) }

// lateness of all Ats of the load: from due to the answer of the first write for it.
func (r *run) lateness() ([]lateAt, error) {
	var all []lateAt
	for _, cluster := range r.fleet.Workloads() {
		served, err := servedAt(r.fleet.Planes.Cluster(cluster).AuditLog())
		if err != nil {
			return nil, err
		}
		for _, m := range r.load.all() {
			if s, ok := served[m.name]; ok && m.cluster == cluster {
				all = append(all, lateAt{m, max(0, s.answered.Sub(m.due)), s.shard})
			}
		}
	}
	return all, nil
}

// felt says until when a fault may make Ats late. A calm one ends when all is at rest.
func (r *run) felt(f fault) time.Time {
	if f.Calm {
		return f.End.Add(calmTail)
	}
	return f.End.Add(r.lease + 2*time.Second)
}

// during are the Ats that a fault may have made late: those that fell due while it was felt, and those that were just due
// and not yet served when it began.
func (r *run) during(f fault, ats []lateAt) []lateAt {
	end := r.felt(f)
	var all []lateAt
	for _, a := range ats {
		if a.due.After(f.Start.Add(-exitLate)) && a.due.Add(a.late).After(f.Start) && a.due.Before(end) {
			all = append(all, a)
		}
	}
	return all
}

// duringCalm are the Ats that calm faults of a kind may have made late.
func (r *run) duringCalm(kind string, ats []lateAt) []lateAt {
	held, others := r.apart(kind, ats)
	return append(held, others...)
}

// apart splits the Ats of duringCalm by whether the victim held their shard. The others' say what else went on meanwhile,
// on a machine that all processes share.
func (r *run) apart(kind string, ats []lateAt) (held, others []lateAt) {
	for _, f := range r.faults {
		if !f.Calm || !strings.HasPrefix(f.Kind, kind) {
			continue
		}
		for _, a := range r.during(f, ats) {
			if _, ok := f.Tenures[a.shard]; ok {
				held = append(held, a)
			} else {
				others = append(others, a)
			}
		}
	}
	return held, others
}

// normal are the Ats that fell due in calm scenarios while no fault was felt.
func (r *run) normal(ats []lateAt) []lateAt {
	var all []lateAt
	for _, a := range ats {
		if r.calmTime(a.due) && !r.nearFault(a.due) {
			all = append(all, a)
		}
	}
	return all
}
