package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/bench/witness"
	"github.com/tenure-dev/tenure/shard/protocol"
	"github.com/tenure-dev/tenure/test/lab"
	"github.com/tenure-dev/tenure/test/lab/faultproxy"
	"github.com/tenure-dev/tenure/test/must"
)

var day = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func after(s float64) time.Time { return day.Add(time.Duration(s * float64(time.Second))) }

// says returns a line of a replica's log.
func says(replica string, at float64, level, msg, err string) logged {
	l := lab.Line{Time: after(at), Level: level, Msg: msg, Err: err, Text: level + " " + msg + ": " + err}
	return logged{l, replica, replica + ".log:1"}
}

func served(name string, due, late float64) lateAt {
	return lateAt{madeAt: madeAt{cluster: "west", name: name, due: after(due)},
		late: time.Duration(late * float64(time.Second)), shard: "west/0"}
}

// sound is an account of a calm minute and a stormy one in which everything was as it must be.
func sound() *account {
	return &account{
		lease: 5 * time.Second, slack: 1, scenarios: []string{"calm", "storm", "handoff"},
		quotas: []quota{{"faults", 3, 3}, {"planned moves", 10, 12}},
		calms:  []window{{day, after(60)}},
		faults: []fault{
			{Kind: paused, Victim: "r1", Start: after(10), End: after(25), Calm: true, Hits: 1},
			{Kind: "SIGKILL", Victim: "r2", Start: after(30), End: after(40), Calm: true, Hits: 1,
				Tenures: map[string]int64{"west/0": 3}},
			{Kind: "partition, home", Victim: "r3 to home", Start: after(70), End: after(75),
				Rule: "{Fault:blackhole}", Hits: 4},
			{Kind: "restart of the API server, home", Victim: "home", Start: after(80), End: after(82), Server: true,
				Hits: 1},
			{Kind: crowded, Victim: "all", Start: after(-9), End: after(-1)},
			{Kind: "500, workload", Victim: "all to west", Start: after(150), End: after(151), Rule: "{Fault:answer}", Hits: 2},
		},
		logs: []logged{
			says("r1", 15, "INFO", "incarnation lapsed: stopping everything it held", ""),
			says("r3", 74, "INFO", "incarnation lapsed: stopping everything it held", ""),
			says("r3", 76, "ERROR", "Reconciler error", "context deadline exceeded"),
			says("r1", 90, "ERROR", "Reconciler error", "ats is forbidden: User"),
			says("r2", 152, "ERROR", "Reconciler error", "fault proxy: 500 to create pods"),
			{lab.Line{Time: after(35), Level: "INFO", Msg: "shard active", Shard: "west/0", Epoch: 4, Kind: protocol.Crash,
				GapMS: 5000}, "r1", "r1.log:9"},
			{lab.Line{Time: after(50), Level: "INFO", Msg: "shard active", Shard: "west/0", Epoch: 5, Kind: protocol.Planned,
				GapMS: 12}, "r3", "r3.log:9"},
			{lab.Line{Time: after(55), Level: "INFO", Msg: "shard active", Shard: "west/0", Epoch: 6, Kind: protocol.Exit,
				GapMS: 20}, "r1", "r1.log:10"},
		},
		ats: []lateAt{served("at-1", 8, 0.1), served("at-2", 31, 5.2), served("at-3", 72, 40)},
	}
}

func TestEachMissIsFoundAndASoundAccountHasNone(t *testing.T) {
	lapsed := func(replica string, at float64) []logged {
		return []logged{says(replica, at, "INFO", "incarnation lapsed", "")}
	}
	failed := func(replica string, at float64, err string) []logged {
		return []logged{says(replica, at, "ERROR", "Reconciler error", err)}
	}
	// of says which cluster or shard a line is about.
	of := func(lines []logged, cluster, shard string) []logged {
		lines[0].Cluster, lines[0].Shard = cluster, shard
		return lines
	}
	stood := func(from, to float64) []fault {
		return []fault{{Kind: stalled, Victim: "all", Start: after(from), End: after(to)}}
	}
	for name, c := range map[string]struct {
		plant  func(*account)
		faults []fault  // added
		logs   []logged // added
		want   string   // "" : a control
	}{
		"nothing planted":        {},
		"quota of faults missed": {plant: func(a *account) { a.quotas[0].got = 2 }, want: "quota: 2 of 3 faults"},
		"quota of moves missed":  {plant: func(a *account) { a.quotas[1].got = 9 }, want: "quota: 9 of 10 planned moves"},
		"a network fault hit nothing": {plant: func(a *account) { a.faults[2].Hits = 0 },
			want: "idle fault: partition, home, r3 to home"},
		"a fault of all replicas hit two of three": {plant: func(a *account) {
			a.faults[2].Hits = 0
			a.faults[2].hit([]int{7, 0, 1})
		}, want: "by the rule {Fault:blackhole}: 2 of 3)"},
		"one hit all three": {plant: func(a *account) {
			a.faults[2].Hits = 0
			a.faults[2].hit([]int{7, 2, 1})
		}},
		"a fault of nobody": {plant: func(a *account) { a.faults[2] = fault{}; a.faults[2].missed(faultproxy.Rule{}) },
			want: "idle fault: , nobody"},
		"a replica was killed that held nothing": {plant: func(a *account) { a.faults[1].Tenures = nil },
			want: "its victim held no shard"},
		"one that held nothing left": {plant: func(a *account) { a.faults[1].Kind, a.faults[1].Tenures = "SIGTERM", nil },
			want: "its victim held no shard"},
		"one was killed in a storm, with home away": {plant: func(a *account) {
			a.faults[1].Calm, a.faults[1].Tenures = false, nil
		}},
		"a fault left no sign": {plant: func(a *account) { a.faults[3].Sign, a.faults[3].Hits = "Leases deleted", 0 },
			want: "idle fault: restart of the API server, home"},
		"a fault left one": {plant: func(a *account) { a.faults[3].Sign, a.faults[3].Hits = "Leases deleted", 1 }},
		"a fault that only two of three replicas show": {plant: func(a *account) {
			a.faults[3].Sign, a.faults[3].Hits, a.faults[3].Of = "replicas with new credentials", 2, 3
		}, want: "(replicas with new credentials: 2 of 3)"},
		"a fault that all three show": {plant: func(a *account) {
			a.faults[3].Sign, a.faults[3].Hits, a.faults[3].Of = "replicas with new credentials", 3, 3
		}},
		"a fault of a process left no sign": {plant: func(a *account) { a.faults[0].Hits = 0 },
			want: "idle fault: SIGSTOP/SIGCONT, r1"},
		"a fault for which nobody looks for a sign": {faults: []fault{{Kind: hogged, Start: after(120), End: after(121)}},
			want: "idle fault: CPU hog"},

		"lapse in calm": {logs: lapsed("r2", 15), want: "lapse in calm: r2"},
		"lapse at rest": {plant: func(a *account) { a.rested = after(180) }, logs: lapsed("r2", 190),
			want: "lapse at rest: r2"},
		"lapse at rest, on a machine that may be busy": {plant: func(a *account) {
			a.rested, a.lenient = after(180), true
		}, logs: lapsed("r2", 190)},
		"lapse before the rest": {plant: func(a *account) { a.rested = after(180) },
			logs: lapsed("r2", 170)},
		"lapse in calm, when the machine stood still": {faults: stood(12, 15), logs: lapsed("r2", 16)},
		"lapse in calm, when the machine stood still for a moment": {plant: func(a *account) { a.lenient = true },
			faults: stood(14.5, 15), logs: lapsed("r2", 16), want: "lapse in calm: r2"},
		"lapse in calm, long after the machine stood still": {faults: stood(5, 8), logs: lapsed("r2", 16),
			want: "lapse in calm: r2"},
		"lapse of who was paused, long after": {logs: lapsed("r1", 50), want: "lapse in calm: r1"},
		"lapse in a storm":                    {logs: lapsed("r2", 72)},

		"a key waits too long in calm": {plant: func(a *account) { a.ats[1].late = 8001 * time.Millisecond },
			want: "wait: 1 keys"},
		"… on a machine that may be busy": {plant: func(a *account) {
			a.lenient, a.ats[1].late = true, 8001*time.Millisecond
		}},
		"… and far too long, on such a one": {plant: func(a *account) { a.lenient, a.ats[1].late = true, 36*time.Second },
			want: "wait: 1 keys"},
		"a key waits too long in a storm": {plant: func(a *account) { a.ats[2].late = 151 * time.Second },
			want: "which may take 2m30s"},
		"a key is never served": {plant: func(a *account) { a.never = []madeAt{{cluster: "east", name: "at-9"}} },
			want: "east/at-9, which was never served"},
		"a shard is never served": {plant: func(a *account) { a.faults[1].Tenures["west/1"] = 2 },
			want: "shards [west/1] were never served again"},

		"refused, while credentials change": {
			faults: []fault{{Kind: "Secret rotated", Victim: "west", Start: after(120), End: after(130), Hits: 1}},
			logs:   failed("r1", 125, "Unauthorized"), want: "unexplained error"},
		"refused, while home is restored": {
			faults: []fault{{Kind: "home restored", Victim: "home", Server: true, Start: after(120), End: after(130), Hits: 1}},
			logs:   failed("r1", 125, "Unauthorized")},
		"slow answers in calm, when the machine stood still": {faults: stood(12, 15),
			logs: failed("r2", 16, "the cluster doesn't answer")},
		"another error in calm, when the machine stood still": {faults: stood(12, 15),
			logs: failed("r2", 16, "connection refused"), want: "unexplained error"},
		"an error that faults cause, in calm": {logs: failed("r2", 32, "context deadline exceeded"),
			want: "unexplained error"},
		"of who is paused, in calm":  {logs: failed("r1", 20, "connection refused"), want: "unexplained error"},
		"after the fault's window":   {logs: failed("r3", 140, "connection refused"), want: "unexplained error"},
		"before the fault's window":  {logs: failed("r3", 65, "connection refused"), want: "unexplained error"},
		"of another than the victim": {logs: failed("r1", 74, "connection refused"), want: "unexplained error"},
		"of another cluster than the fault's": {
			logs: of(failed("r2", 151, "fault proxy: 500 to create pods"), "east/p0", ""), want: "unexplained error"},
		"of a shard of that cluster": {logs: of(failed("r2", 151, "fault proxy: 500 to create pods"), "", "west/p0")},
		"of a cluster, while home fails": {
			logs: of(failed("r3", 76, "context deadline exceeded"), "east/p0", "")},
		"of another kind than the fault's": {logs: failed("r3", 74, "fault proxy: 500"), want: "unexplained error"},
		"that nothing explains":            {logs: failed("r3", 74, "index out of range"), want: "index out of range"},
		"slow, while all start":            {logs: failed("r1", -5, "context deadline exceeded")},
		"refused, while all start":         {logs: failed("r1", -5, "connection refused"), want: "unexplained error"},
		"a panic": {logs: []logged{says("r3", 74, "", "panic: connection refused", "")},
			want: "panic"},
		"all of a cluster's clients": {logs: failed("r1", 151.5, "fault proxy: 500")},
	} {
		a := sound()
		if c.plant != nil {
			c.plant(a)
		}
		a.faults, a.logs = append(a.faults, c.faults...), append(a.logs, c.logs...)
		err := a.complaints()
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
}

func TestAPodThatWasMadeAgainFailsTheRun(t *testing.T) {
	for remade, want := range []string{"", "run twice: 1 Pods"} {
		r := &run{fleet: &lab.Fleet{}, load: &load{}}
		a, err := r.account(&witness.Report{Ats: witness.AtStats{PodsRemade: remade}})
		must.Succeed(t, err)
		if err := a.complaints(); (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%d: got %v, want %q", remade, err, want)
		}
	}
}

func TestAnExcusedLineNamesFaultVictimAndWindow(t *testing.T) {
	excused, _ := sound().errors()
	const want = "partition, home, r3 to home, 00:01:10.000 to 00:01:15.000"
	if len(excused) != 3 || excused[want] != 1 {
		t.Errorf("got %v, want three, one of them %q", excused, want)
	}
}

func TestEachMissedTargetIsFoundAndASoundAccountMeetsAll(t *testing.T) {
	rate := func(perSecond float64) *witness.Report {
		return &witness.Report{Coordination: witness.Coordination{PerSecond: &perSecond}}
	}
	gapOf := func(a *account, kind protocol.MoveKind, ms float64) {
		for i := range a.logs {
			if a.logs[i].Kind == kind {
				a.logs[i].GapMS = ms
			}
		}
	}
	drop := func(a *account, kind protocol.MoveKind) {
		a.logs = slices.DeleteFunc(a.logs, func(l logged) bool { return l.Kind == kind })
	}
	odd := func(a *account) {
		a.ordeals = []ordeal{{kind: "odd", wait: func(*account) time.Duration { return time.Second },
			refused: untidyWrites}}
		a.faults = append(a.faults, fault{Kind: "odd", Start: after(70), Since: after(70), Lifted: after(73), End: after(75)})
	}
	long := 900.0
	for name, c := range map[string]struct {
		plant  func(*account)
		report *witness.Report
		want   string
	}{
		"nothing planted": {func(*account) {}, rate(1.2), ""},
		"slow planned handoff": {func(a *account) { gapOf(a, protocol.Planned, 101) }, rate(1),
			"gap of a planned handoff, p99"},
		"slow in the middle": {func(a *account) { gapOf(a, protocol.Planned, 26) }, rate(1),
			"gap of a planned handoff, p50"},
		"slow clean exit": {func(a *account) { gapOf(a, protocol.Exit, 251) }, rate(1), "gap of a clean exit, p99"},
		"slow takeover": {func(a *account) { a.logs[5].Time = after(36.1) }, rate(1),
			"unserved after SIGKILL, max"},
		"an At late after a crash": {func(a *account) { a.ats[1].late = 5800 * time.Millisecond }, rate(1),
			"an At that fell due after SIGKILL"},
		"an At late after an exit": {func(a *account) {
			a.faults[1].Kind, a.ats[1].late = "SIGTERM", 600*time.Millisecond
		}, rate(1), "an At that fell due after SIGTERM"},
		"a short gap in the log, a long one by the audit logs": {func(*account) {},
			&witness.Report{Handoffs: []witness.Handoff{
				{Kind: protocol.Planned, Time: after(50), UnservedMs: &long}, {Kind: protocol.Planned, Time: after(51)},
			}}, "keys due at handoffs (Planned), by the audit logs"},
		"such a gap in a storm": {func(*account) {}, &witness.Report{Handoffs: []witness.Handoff{
			{Kind: protocol.Planned, Time: after(90), UnservedMs: &long},
		}}, ""},
		"many writes at rest": {func(*account) {}, rate(1.3), "coordination writes"},
		// What was done and not measured.
		"no planned handoff in a log": {func(a *account) { drop(a, protocol.Planned) }, rate(1),
			"gap of a planned handoff, p50: no sample"},
		"no handoff after an exit": {func(a *account) {
			a.faults[0].Kind = "SIGTERM"
			drop(a, protocol.Exit)
		}, rate(1), "gap of a clean exit, p99: no sample"},
		"no tenure of who was killed": {func(a *account) { a.faults[1].Tenures = nil }, rate(1),
			"unserved after SIGKILL, max: no sample"},
		"no At after a crash": {func(a *account) { a.ats = a.ats[:1] }, rate(1),
			"an At that fell due after SIGKILL, the latest: no sample"},
		"no At beside all faults": {func(a *account) { a.ats = a.ats[1:] }, rate(1),
			"an At that fell due after SIGKILL, the latest: no sample"},
		"no key due at ten planned handoffs": {func(a *account) {
			for range 9 {
				a.logs = append(a.logs, a.logs[6])
			}
		}, rate(1), "keys due at handoffs (Planned), by the audit logs, p99: no sample"},
		"no At that an untidy fault could delay": {func(a *account) { odd(a); a.ats = a.ats[:2] }, rate(1),
			"odd (1): longest wait of an At: no sample"},
		"one that it did delay":           {odd, rate(1), "odd (1): longest wait of an At: 40s"},
		"a lapse too many, because of it": {odd, rate(1), "odd (1): lapses: 1, should be at most 0"},
		"a move too many, because of it": {func(a *account) {
			odd(a)
			a.logs[6].Time = after(72)
		}, rate(1), "odd (1): moves of a shard until it ended: 1, should be at most 0"},
		"a write that home refused too many, because of it": {func(a *account) {
			odd(a)
			for range 31 { // in 15 s
				a.refused = append(a.refused, refusal{"r1", after(71)})
			}
		}, rate(1), "odd (1): refused writes a second and replica: 2.07, should be at most 2.00"},
		"no write too many, and of several replicas": {func(a *account) {
			odd(a)
			a.ats[2].late = 500 * time.Millisecond
			a.logs[1].Time = after(80)
			for _, replica := range []string{"r1", "r2"} {
				for range 30 {
					a.refused = append(a.refused, refusal{replica, after(71)})
				}
			}
		}, rate(1), ""},
		"no key due at nine": {func(a *account) {
			for range 8 {
				a.logs = append(a.logs, a.logs[6])
			}
		}, rate(1), ""},
	} {
		a := sound()
		c.plant(a)
		err := missed(a.targets(c.report))
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
}
