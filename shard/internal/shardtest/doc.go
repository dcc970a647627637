// Package shardtest holds packages ownership and driver to their invariants in a simulated world: many processes
// against a store that loses, delays and repeats messages, on clocks that drift, jump and stand still. Not a line of
// the protocol is simulated: driver, machine and planner are the ones that run in production.
//
// # What is simulated
//
// A [Schedule] is drawn from a seed: a few replicas and clusters, clock rates, and some forty kinds of
// [Fault], all of them data. A [Simulator] runs it event by event. The store has one growing version for all records,
// as etcd has, and a watch per kind of record, between which no order is promised. A process is a [driver.Driver]: what
// it asks for becomes messages, timers and gates, as package shard makes calls of it. In some worlds kubelets report
// how processes ended; in some, processes begin as the previous version, which knows no layouts, and are upgraded and
// rolled back at any time. While a gate is open and [driver.Driver.Valid] says so, reconciles write; a write's check
// and its sending are one instant, as in the fenced transport, and what is on the wire already isn't followed any
// further.
//
// # What is checked
//
// During the run:
//
//   - I1: at most one process may act for a slot, whatever names its cluster has.
//   - I2: the epochs of the writes that are sent never fall, and those in the records grow with each new holder.
//   - I5: a planned move costs at most three writes, and nothing is reported during it.
//   - R2: a holder is replaced only by its own write, or after it was sealed.
//   - R3: no incarnation that may act is sealed, and no sealed lease is written.
//   - No process announces cold caches as warm, serves before its caches are warm, reports the wrong kind of move,
//     or asks again and again for ticks without doing anything.
//
// After the last fault, every shard must be served again within a lease duration and a second, or longer after some
// faults (I3). In some runs the shards must then be spread evenly, no record of a cluster that is gone may name a
// holder, and after that only renewals and reports may be written.
//
// Not checked here: I4 (package engage handles the keys of a shard), I7 (the reconcilers ensure it), and writes to
// workload clusters.
//
// # Where it fails
//
// Command sim goes on after a failure and ends with a table of the kinds of failure. For each kind it prints the
// story of the failure with the smallest seed, shrunk to the faults that it needs, and the command that replays it:
//
//	go run ./shard/internal/shardtest/cmd/sim --shrink --seed 40001936553
//
// With --record it adds the shrunk schedules to a file. Every run begins with those in testdata/regressions.jsonl
// ([Regression]). REGRESSIONS.md beside it tells the cause and the mend of each.
//
// Stories in testdata are written by hand, for people to read ([Tell]). Package mutants holds seeded bugs that all
// of this must catch.
//
// # What the schedules leave out
//
// No schedule has the following, since the protocol promises nothing about it. Most of the reasons are in
// shard/DESIGN.md under "What is not guaranteed".
//
//   - Clocks: rates that differ by more than the margin covers; a wall clock that is set back while its machine
//     sleeps.
//   - Users: one who deletes a shard's record while a request to create it is in flight; one who makes a record by
//     hand twice while no coordinator lives.
//   - A restore of home from a snapshot that has all renewals of a process, but lacks writes that this process hadn't
//     seen yet, or whose watches stand still before they have shown what was restored.
//   - A process that starts less than two lease durations after home has lost the running fleet. That is so after a
//     restore of a snapshot that shows no fleet, a stopped fleet, or only records that were never held. It is
//     also so after the loss of all Leases together with all records that had a holder.
//   - A layout that users delete in a run in which clusters exchange names; a process that can't tell which cluster a
//     name leads to, in such a run. (And what a process opens before it has seen all layouts isn't compared with what
//     is served under other names.)
//   - Clocks that differ, or are set, in a run in which the store's history is replaced.
//   - A record that has the same resourceVersion in two histories, with different content.
//   - While processes of the previous version run: records that users make, or make anew after they were retired;
//     records that users delete in a cluster whose layout is of a later generation; names that are exchanged; a layout
//     or cluster that users replace before each slot has had a record of the first generation.
package shardtest
