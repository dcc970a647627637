// Package driver is the part of a process between the protocol's state machine and the world, as a second pure state
// machine. It decides what becomes of a write, when a write is repeated or its record read live, how many requests are
// in flight, which answers still count, when an incarnation has stopped and its lease is sealed, and when the next one
// begins.
//
// A [Driver] is one process. It is fed events (a record was seen, a write was answered, caches are warm, time passed)
// and answers with requests (write this, read that, warm, open, drain, close). It has no goroutine, no clock, no
// context and no lock, and imports only the pure packages ownership, keyspace and protocol. Package shard carries the
// requests out against real API servers; package shardtest does so in a simulated world in which requests are lost,
// late and repeated. Both run this very code:
//
//	         events                    inputs
//	world ────────────▶  Driver  ────────────▶  ownership.Replica
//	      ◀────────────          ◀────────────
//	         requests                  effects
package driver
