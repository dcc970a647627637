package witness

import (
	"fmt"
	"slices"
)

// stamp writes a time as the logs do.
func stamp(us int64) string { return instant(us).Format("2006-01-02T15:04:05.000000Z07:00") }

// judge draws the report from what was collected.
func (l *ledger) judge() *Report {
	all := l.lives()
	keyOf, homeless := l.owners(all)
	l.settlePods(all, keyOf)
	tenures := l.judgeTenures(keyOf)
	history := l.history()
	l.judgeGrants(history)
	ats, lives := l.judgeAts(all, l.served(keyOf))
	ats.PodsWithoutAt = homeless

	r := &Report{Schema: Schema, From: instant(l.from), To: instant(l.to)}
	r.Moves = l.sumMoves(history, tenures)
	r.Handoffs = history.handoffs
	if r.Handoffs == nil {
		r.Handoffs = []Handoff{}
	}
	r.Coordination = l.coordination()
	r.API = l.use(lives, keyOf)
	r.Ats, r.Fenced = ats, l.fenced
	objects := make(map[int32]bool)
	for _, w := range l.writes {
		objects[w.object] = true
	}
	l.stats.Objects = len(objects)
	r.Writes = l.stats
	r.Counts = l.found.counts
	r.Violations = l.ordered()
	r.OK = r.Count() == 0
	r.Vacuous = r.Writes.Judged == 0 && r.Ats.Seen == 0
	r.Notices = l.notices(r, history)
	return r
}

// served lists for each key when writes for it were answered, sorted.
func (l *ledger) served(keyOf []int32) map[int32][]int64 {
	ends := make(map[int32][]int64)
	for _, w := range l.writes {
		ends[keyOf[w.object]] = append(ends[keyOf[w.object]], w.end)
	}
	// Without shards (plain leader election) no write carries an epoch, but Pods are still told by the agent.
	for _, p := range l.podFacts {
		if p.created && !p.maybe {
			ends[keyOf[p.object]] = append(ends[keyOf[p.object]], p.end)
		}
	}
	for _, e := range ends {
		slices.Sort(e)
	}
	return ends
}

// ordered sorts the listed violations by kind, in the order of the kinds' list.
func (l *ledger) ordered() []Violation {
	out := []Violation{}
	for _, k := range kinds {
		if _, ok := l.found.counts[k.kind]; !ok {
			l.found.counts[k.kind] = 0
		}
		for _, v := range l.found.listed {
			if v.Kind == k.kind {
				out = append(out, v)
			}
		}
	}
	return out
}

// notices says what could not be judged.
func (l *ledger) notices(r *Report, m *moves) []string {
	out := []string{}
	note := func(n int, text string) {
		if n > 0 {
			out = append(out, fmt.Sprintf("%d %s", n, text))
		}
	}
	if r.Writes.Judged == 0 {
		out = append(out, "no write carries a shard and an epoch: I1 and I2 were judged on nothing")
	}
	if len(l.records) == 0 {
		out = append(out, "no shard record with its body (home cluster, level RequestResponse): handoffs unknown, I5 not judged")
	}
	if m.restored {
		out = append(out, "a record's resourceVersions fell (home cluster restored?): its history is ordered by time")
	}
	note(r.Writes.Unattributed, "writes of ours to Ats, Pods, Deployments or Namespaces carry no shard and epoch: not judged for I1 and I2")
	note(r.Writes.Unknown, "writes have an unknown outcome (server error or timeout): not judged")
	note(l.recordBodiless, "writes to shard records are logged without the record: not part of any handoff")
	note(r.Ats.LostUnknown, "Ats without a Pod or DONE may be lost: their due time isn't in the logs (give a list of Ats)")
	note(r.Ats.EarlyUnknown, "Pods can't be checked for being early: their At's due time isn't in the logs (give a list of Ats)")
	note(r.Ats.PodsWithoutAt, "Pods of ours fit no known At: not judged for I7")
	if r.Ats.Seen == 0 {
		out = append(out, "no At is in the logs or in a list: I4 and I7 were judged on nothing")
	}
	if r.Ats.Seen > 0 && r.Ats.Done == 0 && r.Ats.Pods > 0 {
		out = append(out, "no At is seen to become DONE (ats/status, level RequestResponse): Pods after DONE can't be told")
	}
	return out
}
