// Package shardtest holds packages ownership and driver to their invariants in a simulated world: many processes against
// a store that loses, delays and repeats messages, on clocks that drift, jump and stand still. Not a line of the protocol
// is simulated: driver, machine and planner are the ones that run in production.
//
// # What is simulated
//
// A [Schedule] is drawn from a seed: a few replicas and clusters, clock rates, and more than two dozen kinds of [Fault], all
// of them data. A [Simulator] runs it event by event. The store has one growing version for all records, as etcd has,
// and a watch per kind of record, between which no order is promised. A process is a [driver.Driver]: what it asks for
// becomes messages, timers and gates, as package shard makes calls of it. In some
// worlds kubelets report how processes ended; in some, processes begin as the previous version, which knows no layouts,
// and are upgraded and rolled back at any time. While a gate is open and [driver.Driver.Valid]
// says so, reconciles write; a write's check and its sending are one instant, as in the fenced transport, and what is on
// the wire already isn't followed any further.
//
// # What is checked
//
// After every event: at most one process may act for a slot (I1); the epochs of what is sent never fall, and those in
// the records grow by one with each change of holder (I2); nobody is sealed who may act, nothing sealed is written
// (R3); nobody is replaced as holder but by itself or after being sealed (R2); a planned move costs at most three
// writes and a report (I5); nobody calls cold caches warm, announces a move as another than it was, or spins. After the last fault: every shard is served again
// within a lease duration and a second (I3); in some runs, then, the shards are spread evenly, and then nothing is
// written but renewals.
//
// Not here: I4 (the keys of a shard are package engage's), I7 (the reconcilers'), and writes to workload clusters.
//
// # Where it fails
//
// Command sim goes on after a failure and prints a table of the kinds it met, each with a story of the one with the
// smallest seed, shrunk to the faults that it needs, and with the command that replays it:
//
//	go run ./shard/internal/shardtest/cmd/sim --shrink --seed 40001936553
//
// It adds what it shrank to testdata/regressions.jsonl ([Regression]), with which every run begins.
//
// Stories in testdata are told by hand, for people to read ([Tell]). Package mutants holds seeded bugs that all of this
// must catch.
//
// # What the schedules leave out
//
// These the protocol promises nothing about: clock rates off by more than the margin covers; a wall clock set back on a
// machine while it sleeps; a user who deletes a shard's record while a request to create it is still on the wire; a user
// who twice makes a record by hand while no coordinator lives; a restored
// snapshot that leaves out what a process doesn't know of, if it also leaves out none of that process's renewals; a process
// that starts within two leases after a snapshot came back of no fleet, of one that was stopped, or of records that nobody
// had ever held, or after all Leases went and all records of holders; clocks that differ or are set where the store's history is replaced;
// one version of one record in two histories; where processes of the previous version run, records
// that users make, those that they delete of a cluster whose layout is of a later generation, and layouts and clusters
// that they replace before all slots have had a record of the first.
package shardtest
