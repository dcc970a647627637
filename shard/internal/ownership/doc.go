// Package ownership is the protocol that decides which replica serves which shard, as a pure state machine.
//
// A [Replica] is one incarnation of one controller process. It is fed inputs (a record was seen, a write was answered,
// a shard's caches are warm, time passed) and answers with effects (renew the lease, write this record, open that
// gate). It has no goroutine, no clock, no socket and no lock. Package driver turns its effects into requests and their
// answers into inputs: package shard runs that against a real API server, package shardtest runs many of them against a
// store that loses, delays and repeats replies. Both run this very code.
//
// # Records
//
// Three kinds of record live in the home cluster, and every write to one is a compare-and-swap on its
// resourceVersion:
//
//   - [Lease], one per incarnation: its owner renews it, anybody may seal it once it has stood still for its whole
//     duration. Sealing is for ever.
//   - [Shard], one per shard: who should hold it (the plan), who does (holder and epoch), who is warm.
//   - [Lead], one in all: which incarnation coordinates, and the epoch floor. It has no heartbeat of its own: it is as
//     alive as the lease of the incarnation it names.
//
// # Invariants
//
// I1 (one holder) rests on five local rules, and on no rule about messages:
//
//	R1  A gate is open only while the replica's own lease is valid on its own clocks: now < start of the last renewal
//	    that is known to have committed + duration - margin. Once that has passed, the incarnation is over for good.
//	R2  A gate opens only for a record that names this incarnation as holder. A holder is replaced only by itself (hand
//	    off, release) or by a claim after its lease was sealed.
//	R3  A lease is sealed only if the very version that is replaced was seen a full duration ago by the sealer's process
//	    ([Memory]), on its own monotonic clock; or if it was seen to be missing for as long; or if it is that of an
//	    earlier incarnation of the same process, which is over; or a second after its Pod has proven that it has ended
//	    (death.go). A renewal is a compare-and-swap too, so a sealed lease is never renewed.
//	R4  A write whose reply was lost is neither done nor failed. The gate it closes stays closed until a newer version
//	    of the record is seen or the same write is committed; resourceVersions make a repeated write harmless. A
//	    rejection without a newer version is no better: the record that is known is still not the one to act on.
//	R5  A claim, a seal, a retirement, and a record or a layout that is made, are sent only right after the home cluster
//	    has shown this incarnation's last renewal (package driver sees to that): a compare-and-swap can't tell that the
//	    home cluster went back.
//
// By R1 the old holder stops a margin before anybody may seal its lease by R3, and by R2 nobody opens before that. The
// margin covers the difference in clock *rates* over one lease duration; clock offsets don't matter, because no
// timestamp of another machine is ever read.
//
// I2 (rising epochs): a record's epoch grows with each change of holder and with nothing else: by one with a handoff,
// by one at least with a claim. A record that is made anew starts above the floor that the coordinator gives it, and isn't
// made, or claimed, before BuryTime has passed: by then the old record's holder has stopped, even if it saw nothing of the deletion,
// since it renews its lease only while its view of the records is recent (ViewTimeout).
//
// I3 (no orphan): a shard whose holder is sealed or missing is claimed by the replica that the pure planner names, and
// every replica runs the same planner on what it sees; nobody waits for an election. I5: a planned move is three
// writes: assignee, warm, hand off. Size and load aren't reported meanwhile. One that is called off is four at most.
//
// The states of a shard at one replica, and what moves it on:
//
//	     assignee or holder is me, or stands by     caches synced
//	 ( idle ) ───────────────────────▶ ( warming ) ──────────────▶ ( warm )
//	    ▲                                                             │ record names me as holder
//	    │ hand off, release or loss seen      plan changed back       ▼
//	( drained ) ◀── drained ── ( draining ) ◀───────────────────▶ ( active )
//	                                        successor is warm
package ownership
