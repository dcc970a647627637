package witness

import (
	"fmt"
	"slices"
	"time"
)

func instant(us int64) time.Time { return time.UnixMicro(us).UTC() }

// stamp formats a time as the logs do.
func stamp(us int64) string { return instant(us).Format("2006-01-02T15:04:05.000000Z07:00") }

// judge makes the report from what was collected.
func (l *ledger) judge() *Report {
	all := l.lives()
	keyOf := l.owners(all)
	l.settlePods(all, keyOf)
	tenures := l.judgeTenures(keyOf)
	history := l.history()
	l.judgeGrants(history)
	l.judgeSeals()
	l.judgeJoined(history)
	l.judgeKeyless()
	ats, lives, services := l.judgeAts(all)
	l.judgeEvidence(ats)

	r := &Report{Schema: Schema, From: instant(l.from), To: instant(l.to), Unwitnessed: l.rules.Unwitnessed}
	r.Moves = history.sum(tenures, l.demands(lives))
	slices.SortStableFunc(history.handoffs, func(a, b Handoff) int { return a.Time.Compare(b.Time) })
	r.Handoffs = append([]Handoff{}, history.handoffs...)
	r.Coordination = l.coordination()
	r.Ats, r.Served, r.Fenced, r.Users = ats, services, l.fenced, l.users
	objects := make(map[int32]bool)
	for _, w := range l.writes {
		objects[w.object] = true
	}
	l.stats.Objects = len(objects)
	r.Writes = l.stats
	r.conclude(&l.found)
	return r
}

// conclude adds the findings.
func (r *Report) conclude(f *findings) {
	r.Violations = f.ordered()
	r.Counts = f.counts
	r.OK = r.Count() == 0
	r.Notices = []string{}
	for _, k := range kinds {
		if reason, ok := f.rules.waives(k.kind); ok && f.waived[k.kind] > 0 {
			r.Notices = append(r.Notices, fmt.Sprintf("%d times %s is accepted: %s", f.waived[k.kind], k.kind, reason))
		}
	}
	note := func(n int, text string) {
		if n > 0 {
			r.Notices = append(r.Notices, fmt.Sprintf("%d %s", n, text))
		}
	}
	note(r.Writes.Unknown, "writes have an unknown outcome (server error or timeout): not judged")
	note(r.Writes.Lost, "writes have no line, and an API server ended then: not judged")
	note(r.Ats.Replaced, "Ats were not served before their cluster was restored: not judged for I4")
	if r.Ats.Seen > 0 && r.Ats.Done == 0 && r.Ats.Pods > 0 {
		r.Notices = append(r.Notices,
			"no At is seen to become DONE (ats/status, level RequestResponse): Pods after DONE can't be told")
	}
}
