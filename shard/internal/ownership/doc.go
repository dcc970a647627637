// Package ownership is the protocol that decides which replica serves which shard, as a pure state machine.
//
// A [Replica] is one incarnation of one controller process. It is fed inputs (a record was seen, a write was answered,
// a shard's caches are warm, time passed) and answers with effects (renew the lease, write this record, open that
// gate). It has no goroutine, no clock, no socket and no lock, and imports nothing but the pure packages keyspace, plan
// and protocol. Its one caller is package driver, which turns effects into requests and their answers into inputs.
// Package shard runs a driver against a real API server; package shardtest runs many of them against a store that
// loses, delays and repeats replies. Both run this very code.
//
// # Records
//
// Four kinds of record live in the home cluster, and every write to one is a compare-and-swap on its
// resourceVersion:
//
//   - [Lease], one per incarnation: its owner renews it, and any peer may seal it once it has stood still for its whole
//     duration. A seal is final.
//   - [Shard], one per shard: who should hold it (the plan), who does (holder and epoch), who is warm.
//   - [Layout], one per cluster: which shards it is divided into. It excludes shards, and grants nothing.
//   - [Lead], one in all: which incarnation coordinates, and the epoch floor. It has no heartbeat of its own: the lease
//     of the incarnation that it names serves as one.
//
// # Invariants
//
// I1 (one holder) rests on five local rules, and on no rule about messages:
//
//	R1  A gate is open only while the replica's own lease is valid on its own clocks: now < start of the last renewal
//	    that is known to have committed + duration - margin. Once that has passed, the incarnation is over for good.
//	R2  A gate opens only for a record that names this incarnation as holder. A holder is replaced only by its own
//	    write (handoff, release, retirement), or after its lease was sealed: by a claim or retirement, or by the
//	    coordinator, which clears the records of removed clusters.
//	R3  A process ([Memory]) may seal a lease only after it has seen one version of it stay unchanged for a full
//	    duration, on its own monotonic clock; the seal replaces that version. Three cases differ: it has found the
//	    lease missing for as long; the lease belongs to an earlier incarnation of the same process, which is over; or a
//	    Pod proved a second ago that the incarnation has ended (death.go). A renewal is a compare-and-swap too, so a
//	    sealed lease is never renewed.
//	R4  A write whose reply was lost is neither done nor failed. The gate it closes stays closed until a newer version
//	    of the record is seen or the same write is committed; resourceVersions make a repeated write harmless. The
//	    same holds for a rejection that shows no newer version: the record that is known is out of date.
//	R5  A claim, a seal, a retirement, a clearing, the creation of a record or a layout, and the repeat of a handoff are
//	    sent only right after the home cluster has shown this incarnation's last renewal (package driver ensures that).
//	    A compare-and-swap alone doesn't notice that the home cluster was restored from a backup.
//
// By R1 the old holder stops a margin before any peer may seal its lease by R3, and by R2 no gate opens before that.
// The margin covers the difference in clock *rates* over one lease duration. Clock offsets don't matter, because no
// timestamp of another machine is ever read.
//
// I2 (rising epochs): a record's epoch grows with each change of holder and with nothing else: by one with a handoff,
// by one at least with a claim. A record that is made again after a deletion starts above the floor that the
// coordinator gives it, and is neither made nor claimed until BuryTime after the deletion. By then the old record's
// holder has stopped even if it didn't see the deletion, since it renews its lease only while its watches are known to
// have shown what was committed until recently (WatchTimeout).
//
// I3 (no orphan): a shard whose holder is sealed or missing is claimed by the replica that the pure planner names, and
// every replica runs the same planner on what it sees; there is no election to wait for. I5: a planned move takes three
// writes: assignee, warm, handoff. Size and load aren't reported meanwhile. A move that is called off takes four at
// most.
//
// Some questions do more than answer. If something is missing for a yes, they request or schedule it, and what comes of
// that triggers the decision again: bars, shownBy, mayClaim, mayRemake, past, newBits, heldTwice,
// ensureLeadRead and ensureFloorRaised.
//
// The states of a shard at one replica, and what changes them:
//
//	     assignee or holder is me, or stands by     caches synced
//	 ( idle ) ───────────────────────▶ ( warming ) ──────────────▶ ( warm )
//	    ▲                                                             │ record names me as holder
//	    │ hand off, release or loss seen      plan changed back       ▼
//	( drained ) ◀── drained ── ( draining ) ◀───────────────────▶ ( active )
//	                                        successor is warm
package ownership
