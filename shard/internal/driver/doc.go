// Package driver is all that lies between the protocol's state machine and the world, as a second pure state machine:
// what becomes of a write, when it is repeated or read afresh, how many are on their way, which answers still count,
// when an incarnation has stopped and its lease is sealed, when the next one begins, what is announced and complained
// of.
//
// A [Driver] is one process. It is fed events (a record was seen, a write was answered, caches are warm, time passed)
// and answers with requests (write this, read that, warm, open, drain, close). It has no goroutine, no clock, no
// context and no lock. Package shard carries the requests out against real API servers, package shardtest against a
// simulated world in which they get lost, late and repeated. Both run this very code:
//
//	         events                    inputs
//	world ────────────▶  Driver  ────────────▶  ownership.Replica
//	      ◀────────────          ◀────────────
//	         requests                  effects
package driver
