package main

import (
	"bytes"
	"slices"
)

// gate is one check that must fail, with the fault that is planted for it.
type gate struct {
	name, plant string
	caught      string // matches the finding
	crash       bool   // a replica has to crash for it
	patient     bool   // it takes longer to be found
	restore     bool   // home goes back to a snapshot first; the replicas have the fault since then
	// Instead of a fault of the replicas' own:
	idle    bool // a network fault for a replica that doesn't exist
	without bool // no At is created
}

// ofReplicas are judged by chaos in a short run of three replicas, each of which has the fault.
var ofReplicas = []gate{
	{name: "I1 write after a handoff", plant: "write-after-handoff", caught: "write-after-handoff"},
	{name: "I1 write after home went back", plant: "write-after-handoff", caught: "write-after-handoff", restore: true},
	{name: "I1 claim before the seal", plant: "claim-before-seal", caught: "claim-before-seal", crash: true},
	{name: "I1 shard of another", plant: "agent-other-shard", caught: "wrong-shard|write-without-grant"},
	{name: "I1 epoch never granted", plant: "agent-future-epoch", caught: "write-without-grant"},
	{name: "I2 epoch used twice", plant: "epoch-repeated", caught: "two-holders|record-epoch"},
	{name: "I4 At lost", plant: "lost-at", caught: "lost-at"},
	{name: "I5 seven writes a move", plant: "seven-writes", caught: "costly-move"},
	{name: "I7 second Pod", plant: "double-pod", caught: "duplicate-pod"},
	{name: "I7 Pod before its time", plant: "early-at", caught: "early-pod"},
	{name: "signature without epoch", plant: "agent-without-epoch", caught: "unattributed-write"},
	{name: "signature garbled", plant: "agent-garbled", caught: "unattributed-write"},
	{name: "signature of a stranger", plant: "agent-foreign", caught: "unattributed-write"},
	{name: "no Ats", plant: "nothing is created", without: true, caught: "no-ats|no-writes"},
	{name: "target: planned handoff", plant: "slow-handoff", caught: `missed target: gap of a planned handoff, p\d+: \d`},
	{name: "target, by the audit logs", plant: "false-gap", caught: `missed target: .*by the audit logs, p99: \d`},
	{name: "bound: a key waits", plant: "late-at", caught: "wait: .*waited too long", patient: true},
	{name: "calm: a replica lapses", plant: "lapse", caught: "lapse in calm"},
	{name: "calm: a replica ends", plant: "exit", caught: "ended by itself"},
	{name: "calm: error that faults cause", plant: "excused-error", caught: "unexplained error"},
	{name: "network fault hits nothing", plant: "rule for nobody", idle: true, caught: "idle fault"},
}

// ofLogs are judged by the witness, on damaged copies of the control run's log of west: two of the damages that
// bench/witness tests on lines of its own, here on lines that a real API server wrote.
var ofLogs = []struct {
	name, plant, caught string
	damage              func(log []byte) []byte
}{
	{"evidence: line", "a write's line left out", "missing-line", func(log []byte) []byte {
		n, early := 0, bytes.Count(log, []byte("\n"))/4
		return without(log, 1, func(l []byte) bool {
			n++
			return n > early && has(l, `"resource":"ats"`, `"phase":"RUNNING"`) && !has(l, `"phase":"DONE"`)
		})
	}},
	{"evidence: Pods", "lines of Pods left out", "no-pods", func(log []byte) []byte {
		return without(log, -1, func(l []byte) bool { return has(l, `"verb":"create"`, `"resource":"pods"`) })
	}},
}

// without leaves out the first lines of a log that are picked, so many at most; -1 is no limit.
func without(log []byte, most int, pick func(line []byte) bool) []byte {
	lines := bytes.SplitAfter(log, []byte("\n"))
	return bytes.Join(slices.DeleteFunc(lines, func(l []byte) bool {
		out := most != 0 && pick(l)
		if out {
			most--
		}
		return out
	}), nil)
}

// has reports whether a line has all of some texts.
func has(line []byte, texts ...string) bool {
	return !slices.ContainsFunc(texts, func(text string) bool { return !bytes.Contains(line, []byte(text)) })
}

// ofPrograms are judged by a program of its own whose replicas have the faults.
var ofPrograms = []struct {
	name, plant, caught string   // all faults of one program are planted together
	command             []string // %s is the replicas' binary
}{
	{"demo: lateness", "late-at", "latest after its time: .*at most", demoCommand},
	{"demo: gap", "slow-handoff", "FAIL +gaps, Planned.* at most", demoCommand},
	{"demo: repair", "late-repairs", "FAIL +copy .* at most", demoCommand},
	{"bench: violation", "double-pod", "INVALID: .*witness found",
		[]string{"bench", "run", "smoke.yaml", "--tenure", "%s"}},
}

var demoCommand = []string{
	"demo", "--ats", "300", "--spread", "20s", "--deployments", "3", "--lease-duration", "3s", "--tenure", "%s",
}

const smoke = `
schema: tenure.dev/bench/scenario/v1
name: smoke
summary: as small as can be
fleet: {clusters: 1, replicas: 2, workers: 4, shardsPerCluster: 4, leaseDuration: 3s}
load: {arrivals: burst, count: 20}
limit: 30s
`

// unplanted are the gates that only table tests check, each with the reason.
const unplanted = `
Held by table tests alone:
  quotas (test/chaos)                  a run that is cut short is a matter of the clock, not of a replica
  excuse beside fault, victim, window  (test/chaos) depends on when a line is written in a storm
  figures: busy machine, known misses  (bench/check, bench/run) a busy machine can't be had without disturbing all else
  simulator: time-out isn't a catch    (shardtest/cmd/mutants) its catches are planted faults themselves
`
