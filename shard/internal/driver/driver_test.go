package driver

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tenure-dev/tenure/shard/internal/ownership"
	"github.com/tenure-dev/tenure/shard/keyspace"
	"github.com/tenure-dev/tenure/shard/protocol"
	"github.com/tenure-dev/tenure/test/expect"
)

const lease = 10 * time.Second

var west = keyspace.ShardID{Cluster: "west"}

// bench drives one process by hand: its clocks are what the test says, and the test answers what it asks for.
type bench struct {
	t     *testing.T
	d     *Driver
	now   ownership.Instant
	out   []Request
	v     ownership.Version
	lives int
	// unvouched has the test answer the reads itself without which nothing is taken.
	unvouched bool
}

// connected is what a process knows that is connected to a cluster west of this number.
func connected(clusterNo uint64) Clusters {
	const west = keyspace.ClusterName("west")
	return Clusters{Bits: map[keyspace.ClusterName]int{west: 0},
		ClusterNos: map[keyspace.ClusterName]uint64{west: clusterNo}}
}

// newBench returns a process that has just started as a-1 and knows the cluster west.
func newBench(t *testing.T) *bench {
	t.Helper()
	return newBenchWith(t, func(cfg *ownership.Config) { cfg.WatchTimeout = 100 * time.Hour })
}

// newBenchWith is newBench, of a process with other timings. The others don't lose sight of the records.
func newBenchWith(t *testing.T, set func(*ownership.Config)) *bench {
	t.Helper()
	b := &bench{t: t, now: ownership.Instant{Mono: time.Hour, Wall: time.Millisecond}, v: 100}
	cfg := ownership.DefaultConfig("", "a", lease)
	set(&cfg)
	b.d = New(Config{
		Protocol: cfg, DrainTimeout: 20 * time.Second,
		Name: func() ownership.Incarnation { b.lives++; return ownership.Incarnation(fmt.Sprint("a-", b.lives)) },
	})
	b.feed(connected(1))
	b.feed(Start{})
	return b
}

// joined returns a process that is a member beside b, which coordinates.
func joined(t *testing.T) *bench {
	t.Helper()
	b := newBench(t)
	b.join()
	return b
}

func (b *bench) join() {
	b.t.Helper()
	begin := find[Begin](b)
	b.feed(Seen{What: ownership.LeaseSeen{Lease: ownership.Lease{ID: "b", Replica: "b", Duration: lease, Version: 1}}})
	b.feed(Seen{What: ownership.LeadSeen{Lead: ownership.Lead{Holder: "b", Version: 2}}})
	b.feed(Listed{begin.ID})
	b.answer(find[Write](b), ownership.Committed)
}

// feed lets the process take an event. Whatever it probes can be used, and the home cluster hasn't gone back. What is
// seen is what the present incarnation was shown, unless the event names another.
func (b *bench) feed(e Event) {
	if seen, ok := e.(Seen); ok && seen.By == "" {
		seen.By = b.d.id
		e = seen
	}
	b.out = append(b.out, b.d.Handle(b.now, e)...)
	for _, p := range all[Probe](b) {
		b.feed(Health{p.Cluster, true})
	}
	if read, ok := b.vouching(); ok && !b.unvouched {
		all[Read](b)
		b.feed(b.ownLease(read))
	}
}

// vouching returns the read of the own lease that writes wait for, if there is one.
func (b *bench) vouching() (Read, bool) {
	for _, p := range b.d.pending {
		if p.why == vouching {
			return Read{Number: p.number, Of: p.of}, true
		}
	}
	return Read{}, false
}

// ownLease answers it: the lease is as it was renewed last.
func (b *bench) ownLease(read Read) Found {
	return Found{Number: read.Number, What: ownership.LeaseSeen{Lease: ownership.Lease{
		ID: read.Of.Lease, Duration: lease, Version: b.d.newest(read.Of),
	}}}
}

func (b *bench) answer(w Write, outcome ownership.Outcome) {
	answer := Written{Number: w.Number, Outcome: outcome}
	if outcome == ownership.Committed {
		b.v++
		answer.Version = b.v
	}
	b.feed(answer)
}

func (b *bench) pass(d time.Duration) {
	b.now = b.now.Add(d)
	b.feed(Tick{})
}

// shows feeds the next version of a record, as the watch would.
func (b *bench) shows(s ownership.Shard) { b.feed(Seen{What: b.record(s)}) }

// showsAll shows the same of all 128 parts of west.
func (b *bench) showsAll(s ownership.Shard) {
	for _, p := range keyspace.Partition(7) {
		s.ID = keyspace.ShardID{Cluster: "west", Prefix: p}
		b.shows(s)
	}
}

// leaseSeen is a lease of which only the version counts.
func leaseSeen(id ownership.Incarnation, version ownership.Version) ownership.LeaseSeen {
	return ownership.LeaseSeen{Lease: ownership.Lease{ID: id, Version: version}}
}

// record is the next version of a record.
func (b *bench) record(s ownership.Shard) ownership.ShardSeen {
	b.v++
	s.Version, s.Floor = b.v, 1
	if s.ID == (keyspace.ShardID{}) {
		s.ID = west
	}
	return ownership.ShardSeen{Shard: s}
}

// served has the process serve the shard at epoch 5.
func (b *bench) served() Open {
	b.t.Helper()
	b.shows(ownership.Shard{Assignee: "a-1", Holder: "a-1", Epoch: 5, UID: "u"})
	b.warmed()
	return find[Open](b)
}

func (b *bench) warmed() Warm {
	b.t.Helper()
	w := find[Warm](b)
	b.feed(Opened{w.Number, w.ID, 1})
	b.feed(Warmed{w.Number, w.ID})
	return w
}

// lapsed lets the lease run out, and everything stop.
func (b *bench) lapsed(quiet bool) {
	b.t.Helper()
	b.pass(lease)
	b.feed(Stopped{find[Stop](b).Number, quiet})
}

// all takes the requests of a type that were made since one of it was last taken.
func all[R Request](b *bench) (found []R) {
	rest := b.out[:0]
	for _, r := range b.out {
		if wanted, ok := r.(R); ok {
			found = append(found, wanted)
		} else {
			rest = append(rest, r)
		}
	}
	b.out = rest
	return found
}

// find takes the last one of a type.
func find[R Request](b *bench) R {
	b.t.Helper()
	found := all[R](b)
	if len(found) == 0 {
		b.t.Fatalf("no %T was asked for", *new(R))
	}
	return found[len(found)-1]
}

// none checks that there is none.
func none[R Request](b *bench) {
	b.t.Helper()
	if found := all[R](b); len(found) > 0 {
		b.t.Fatalf("%+v was asked for", found[0])
	}
}

// writes takes the writes since one was last taken, and returns those whose effect is of a type.
func writes[E ownership.Effect](b *bench) []Write {
	return slices.DeleteFunc(all[Write](b), func(w Write) bool { _, ok := w.Effect.(E); return !ok })
}

// seals reports whether the lease of an incarnation is sealed by the writes since one was last taken.
func (b *bench) seals(id ownership.Incarnation) bool {
	return slices.ContainsFunc(writes[ownership.SealLease](b), func(w Write) bool {
		return w.Effect.(ownership.SealLease).ID == id
	})
}

// writing takes the last write whose effect is of a type.
func writing[E ownership.Effect](b *bench) (w Write, e E) {
	b.t.Helper()
	w = find[Write](b)
	e, ok := w.Effect.(E)
	if !ok {
		b.t.Fatalf("the last write is %+v, want %T", w.Effect, e)
	}
	return w, e
}

// claiming returns a process that has asked to claim a free shard.
func claiming(t *testing.T) (*bench, Write) {
	t.Helper()
	b := joined(t)
	b.shows(ownership.Shard{Assignee: "a-1", Epoch: 4, UID: "u"})
	w, _ := writing[ownership.WriteShard](b)
	return b, w
}

func TestAWriteThatIsNotCommittedIsReadAfreshBeforeTheMachineIsTold(t *testing.T) {
	for _, outcome := range []ownership.Outcome{ownership.Rejected, ownership.Unknown} {
		t.Run(outcome.String(), func(t *testing.T) {
			b, w := claiming(t)
			b.answer(w, outcome)
			read := find[Read](b)
			if read.Of != (Subject{Shard: west}) {
				t.Fatalf("%+v is read, want the record", read.Of)
			}
			b.feed(Found{Number: read.Number, What: b.record(ownership.Shard{Assignee: "a-1", Holder: "a-1", Epoch: 5})})
			if hs := b.d.Holdings(); len(hs) != 1 || hs[0].Phase != "warming" {
				t.Errorf("after the read, which shows that it was committed, it holds %+v", hs)
			}
			none[Write](b)
		})
	}
}

func TestAWriteWhoseRecordCannotBeReadIsRepeatedAsItWas(t *testing.T) {
	b, w := claiming(t)
	b.answer(w, ownership.Unknown)
	b.feed(Found{Number: find[Read](b).Number})
	none[Write](b)
	b.pass(lease / 40)
	again, _ := writing[ownership.WriteShard](b)
	if diff := cmp.Diff(w, again, cmpopts.IgnoreFields(Write{}, "Number")); diff != "" || again.Number == w.Number {
		t.Errorf("the repeat differs, or has the same number (-first +again):\n%s", diff)
	}
	b.answer(w, ownership.Committed)
	none[Warm](b) // a second answer to the first is none
	b.answer(again, ownership.Committed)
	find[Warm](b)
}

func TestALostRenewalIsRepeatedWithoutAReadAndARefusedOneIsReadFirst(t *testing.T) {
	b := joined(t)
	b.pass(lease / 4)
	w, _ := writing[ownership.WriteLease](b)
	b.answer(w, ownership.Unknown)
	none[Read](b)
	b.pass(lease / 40)
	w, _ = writing[ownership.WriteLease](b)
	b.answer(w, ownership.Rejected)
	read := find[Read](b)
	if read.Of != (Subject{Lease: "a-1"}) {
		t.Fatalf("%+v is read, want the lease", read.Of)
	}
	b.feed(Found{Number: read.Number, What: leaseSeen("a-1", 900)})
	if _, e := writing[ownership.WriteLease](b); e.Base != 900 {
		t.Errorf("renews version %d, want the one that was read", e.Base)
	}
}

func TestARenewalIsWaitedForMostOfTheTimeThatIsLeftAndOthersForAnEighthOfTheLease(t *testing.T) {
	b := newBench(t)
	if w, _ := writing[ownership.WriteLease](b); w.Patience != lease/8 {
		t.Errorf("the first is waited for %v", w.Patience)
	}
	b, w := claiming(t)
	if w.Patience != lease/8 {
		t.Errorf("a claim is waited for %v", w.Patience)
	}
	b.pass(lease / 4) // 5.5 s are left
	if w, _ := writing[ownership.WriteLease](b); w.Patience != 4125*time.Millisecond {
		t.Errorf("a renewal is waited for %v", w.Patience)
	}
	b.d.cfg.Protocol.LeaseDuration = time.Second
	b.d.pace = 0
	if got := b.d.patience(); got != 500*time.Millisecond {
		t.Errorf("with a short lease, a request is waited for %v", got)
	}
}

func TestARenewalTellsHowMuchTimeWasLeft(t *testing.T) {
	b := joined(t)
	none[Renewed](b) // there was no lease to lose
	b.pass(lease / 4)
	w := find[Write](b)
	b.now = b.now.Add(time.Second)
	b.answer(w, ownership.Committed)
	if r := find[Renewed](b); r.Left != 4500*time.Millisecond {
		t.Errorf("%v were left", r.Left)
	}
}

func TestSoManyRecordsAreWrittenAtOnceAndRenewalsWaitForNone(t *testing.T) {
	b := joined(t)
	b.showsAll(ownership.Shard{Assignee: "a-1", Epoch: 4})
	sent := all[Write](b)
	if len(sent) != room[ownership.Takeovers] {
		t.Fatalf("%d claims are on their way at once, want %d", len(sent), room[ownership.Takeovers])
	}
	b.answer(sent[0], ownership.Committed)
	next := all[Write](b)
	if len(next) != 1 {
		t.Fatalf("one was answered, and %d follow", len(next))
	}
	b.answer(sent[1], ownership.Rejected)
	none[Write](b) // its record is read first
	b.feed(Found{Number: find[Read](b).Number})
	if got := len(all[Write](b)); got != 1 {
		t.Fatalf("after the read, %d follow", got)
	}
	b.pass(lease / 4)
	if _, renewal := writing[ownership.WriteLease](b); renewal.Base == 0 {
		t.Error("the renewal creates a lease")
	}
	told := map[keyspace.ShardID]bool{}
	for _, w := range append(sent, next...) {
		told[w.Effect.(ownership.WriteShard).Shard.ID] = true
	}
	if len(told) != room[ownership.Takeovers]+1 {
		t.Errorf("%d shards were claimed, one twice", len(told))
	}
}

func TestADeletionIsBelievedThatFollowsInTheSameInstant(t *testing.T) {
	b := joined(t)
	b.served()
	b.feed(Seen{What: ownership.ShardGone{ID: west}})
	b.feed(Found{Number: find[Read](b).Number, What: ownership.ShardGone{ID: west}})
	find[Close](b)
}

func TestADeletionIsReadLiveBeforeItIsBelieved(t *testing.T) {
	b := joined(t)
	b.served()
	b.now = b.now.Add(time.Second)
	b.feed(Seen{What: ownership.ShardGone{ID: west}})
	read := find[Read](b)
	none[Close](b)
	b.feed(Found{Number: read.Number})
	none[Close](b)
	if wake := b.d.Wake(); wake > b.now.Mono+confirmEvery {
		t.Errorf("wakes after %v", wake-b.now.Mono)
	}
	b.pass(confirmEvery)
	read = find[Read](b)
	b.feed(Found{Number: read.Number, What: ownership.ShardGone{ID: west}})
	find[Close](b)
}

func TestAReadThatWasSentBeforeARecordWasSeenProvesNoDeletion(t *testing.T) {
	b := joined(t)
	b.served()
	b.feed(Seen{What: ownership.ShardGone{ID: west}}) // and made anew
	read := find[Read](b)
	b.now = b.now.Add(time.Second)
	b.shows(ownership.Shard{Assignee: "a-1", Holder: "a-1", Epoch: 5, UID: "u"})
	b.feed(Found{Number: read.Number, What: ownership.ShardGone{ID: west}})
	none[Close](b)
}

func TestALeaseThatIsLookedForIsFedAsItIsFound(t *testing.T) {
	b := joined(t)
	b.shows(ownership.Shard{Assignee: "c", Holder: "c", Epoch: 5})
	read := find[Read](b)
	if read.Of != (Subject{Lease: "c"}) {
		t.Fatalf("%+v is read, want the holder's lease", read.Of)
	}
	b.feed(Found{Number: read.Number, What: ownership.LeaseGone{ID: "c"}})
	b.answerRenewals(4) // until c has been missing for a lease
	b.pass(lease / 10)
	if !b.seals("c") {
		t.Error("c isn't sealed, though its lease was missing for its whole duration")
	}
}

func TestOnlyAnswersToTheLatestWarmAndDrainCount(t *testing.T) {
	b := joined(t)
	b.shows(ownership.Shard{Assignee: "a-1", Holder: "b", Epoch: 4})
	first := find[Warm](b)
	b.shows(ownership.Shard{Assignee: "b", Holder: "b", Epoch: 4})
	find[Close](b)
	b.shows(ownership.Shard{Assignee: "a-1", Holder: "b", Epoch: 4})
	second := find[Warm](b)
	b.feed(Warmed{first.Number, west})
	none[Write](b)
	b.feed(Warmed{second.Number, west})
	find[Write](b)

	b = joined(t)
	b.served()
	b.shows(ownership.Shard{Assignee: "b", Holder: "a-1", Epoch: 5, Warm: "b"})
	drain := find[Drain](b)
	b.feed(Drained{Number: drain.Number - 1, ID: west})
	none[Write](b)
	b.feed(Drained{Number: drain.Number, ID: west})
	find[Write](b)
}

func TestAHandOffTellsWhenTheTenureEnded(t *testing.T) {
	b := joined(t)
	b.served()
	b.shows(ownership.Shard{Assignee: "b", Holder: "a-1", Epoch: 5, Warm: "b"})
	drain, ended := find[Drain](b), time.Unix(7, 0)
	b.feed(Drained{Number: drain.Number, ID: west, Ended: ended})
	w, e := writing[ownership.WriteShard](b)
	if e.Kind != ownership.HandOff || w.Of == nil || w.Of.Epoch != 5 || !w.Of.Ended.Equal(ended) {
		t.Errorf("%v tells %+v", e.Kind, w.Of)
	}
}

func TestATenureIsAnnouncedWithHowItCameAbout(t *testing.T) {
	at := time.Unix(7, 0)
	for _, c := range []struct {
		name string
		open func(*testing.T) Open
		want Open
	}{
		{"by a claim whose record wasn't seen yet", func(t *testing.T) Open {
			b, w := claiming(t)
			b.answer(w, ownership.Committed)
			none[Read](b) // a committed write is told at once
			b.warmed()
			return find[Open](b)
		}, Open{Kind: protocol.Join}},
		{"by a claim that was seen, with what it says of itself", func(t *testing.T) Open {
			b, _ := claiming(t)
			b.shows(ownership.Shard{Assignee: "a-1", Holder: "a-1", Epoch: 5, UID: "u",
				Moved: &ownership.Move{Kind: protocol.Join, To: "a-1", At: at}})
			b.warmed()
			return find[Open](b)
		}, Open{Kind: protocol.Join}},
		{"by a planned move", func(t *testing.T) Open {
			b := joined(t)
			b.shows(ownership.Shard{Assignee: "a-1", Holder: "a-1", Epoch: 5, UID: "u",
				Moved: &ownership.Move{Kind: protocol.Planned, From: "b", To: "a-1", At: at}})
			b.warmed()
			return find[Open](b)
		}, Open{Kind: protocol.Planned, From: "b", Since: at}},
		{"by a planned move, after a claim that was rejected", func(t *testing.T) Open {
			b, w := claiming(t)
			b.answer(w, ownership.Rejected)
			b.feed(Found{Number: find[Read](b).Number, What: b.record(ownership.Shard{Assignee: "b", Holder: "b", Epoch: 4})})
			b.shows(ownership.Shard{Assignee: "a-1", Holder: "a-1", Epoch: 5, UID: "u",
				Moved: &ownership.Move{Kind: protocol.Planned, From: "b", To: "a-1", At: at}})
			b.warmed()
			return find[Open](b)
		}, Open{Kind: protocol.Planned, From: "b", Since: at}},
		{"by a record that tells of another's move", func(t *testing.T) Open {
			b := joined(t)
			b.shows(ownership.Shard{Assignee: "a-1", Holder: "a-1", Epoch: 5, UID: "u",
				Moved: &ownership.Move{Kind: protocol.Planned, From: "a-1", To: "b", At: at}})
			b.warmed()
			return find[Open](b)
		}, Open{}},
		{"once more, after a drain that led nowhere", func(t *testing.T) Open {
			b := joined(t)
			b.served()
			b.shows(ownership.Shard{Assignee: "b", Holder: "a-1", Epoch: 5, Warm: "b", UID: "u"})
			drain := find[Drain](b)
			b.shows(ownership.Shard{Assignee: "a-1", Holder: "a-1", Epoch: 5, UID: "u"})
			b.feed(Drained{Number: drain.Number, ID: west, Ended: at})
			return find[Open](b)
		}, Open{Kind: protocol.Resumed, Since: at}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.want.ID, c.want.Epoch, c.want.Record = west, 5, "u"
			expect.Equal(t, "announced", c.want, c.open(t), cmpopts.EquateComparable(keyspace.ShardID{}))
		})
	}
}

func TestAReplacedClusterIsGoneUntilTheOldOneServesNothing(t *testing.T) {
	b := joined(t)
	b.served()
	b.feed(connected(2))
	drain := find[Drain](b)
	b.feed(Drained{Number: drain.Number, ID: west})
	w, e := writing[ownership.WriteShard](b)
	if e.Kind != ownership.Release {
		t.Fatalf("it asks for %v", e.Kind)
	}
	none[Warm](b)
	b.answer(w, ownership.Committed)
	find[Close](b)
	b.shows(ownership.Shard{Assignee: "a-1", Epoch: 5})
	if _, e := writing[ownership.WriteShard](b); e.Kind != ownership.ClaimFree {
		t.Errorf("over the new cluster, it asks for %v", e.Kind)
	}
}

func TestAClusterThatWasReplacedWhileCachesWereBuiltIsNoticed(t *testing.T) {
	b := joined(t)
	b.shows(ownership.Shard{Assignee: "a-1", Holder: "b", Epoch: 5})
	warm := find[Warm](b)
	b.feed(connected(2))
	none[Close](b) // they may yet be built over the new one
	b.feed(Opened{warm.Number, west, 1})
	find[Close](b)
	find[Warm](b)
}

// Thousands of shards may be taken over at once.
func TestCachesThatAreBuiltOverThePresentClusterMakeNoWorkForAllOtherShards(t *testing.T) {
	b := joined(t)
	b.shows(ownership.Shard{Assignee: "a-1", Holder: "b", Epoch: 5})
	warm := find[Warm](b)
	b.d.opened(Opened{warm.Number, west, 1})
	if b.d.stale {
		t.Error("the machine is told of all clusters anew")
	}
	b.d.opened(Opened{warm.Number, west, 2}) // the news of that cluster is on its way
	if !b.d.stale {
		t.Error("the machine isn't told that the cluster is another")
	}
}

func TestAnIncarnationThatLapsedStopsIsSealedAndTheNextBegins(t *testing.T) {
	b := joined(t)
	b.served()
	b.pass(lease)
	stop := find[Stop](b)
	if b.d.Valid(b.now) || b.d.ValidUntil() != (ownership.Instant{}) {
		t.Error("it may still act")
	}
	b.pass(time.Minute)
	none[Begin](b) // while anything runs
	none[Read](b)
	b.feed(Stopped{stop.Number, true})
	read := find[Read](b)
	if read.Of != (Subject{Lease: "a-1"}) {
		t.Fatalf("%+v is read, want its own lease", read.Of)
	}
	b.feed(Found{Number: read.Number, What: leaseSeen("a-1", 900)})
	w, seal := writing[ownership.SealLease](b)
	if seal.ID != "a-1" || seal.Base != 900 {
		t.Errorf("seals %+v", seal)
	}
	b.answer(w, ownership.Committed)
	b.pass(firstPause)
	if begin := find[Begin](b); begin.ID != "a-2" || b.d.ID() != "a-2" {
		t.Errorf("goes on as %s", begin.ID)
	}
	b.pass(lease / 2)
	none[Read](b) // it is sealed
}

func TestTheNextIncarnationDoesNotWaitForTheSealWhichGoesOn(t *testing.T) {
	b := joined(t)
	b.lapsed(true)
	read := find[Read](b)
	b.pass(firstPause - 1)
	none[Begin](b)
	b.pass(1)
	find[Begin](b)
	b.feed(Found{Number: read.Number})
	none[Read](b)
	b.pass(lease / 40)
	read = find[Read](b) // the sealing goes on
	b.feed(Found{Number: read.Number, What: leaseSeen("a-1", 900)})
	seals := writes[ownership.SealLease](b)
	if len(seals) != 1 {
		t.Fatalf("%d seals", len(seals))
	}
	b.answer(seals[0], ownership.Rejected) // a late renewal was faster
	b.pass(lease / 16)
	read = find[Read](b)
	b.feed(Found{Number: read.Number, What: ownership.LeaseGone{ID: "a-1"}})
	b.pass(lease / 16)
	none[Read](b)
}

func TestNoIncarnationIsSealedAnyMoreWhereHomeHasGoneBack(t *testing.T) {
	for when, found := range map[string]func(b *bench){
		"between two incarnations": func(*bench) {},
		"while the next runs": func(b *bench) {
			b.pass(firstPause)
			find[Begin](b)
		},
		"as the next lapses": func(b *bench) {
			b.pass(firstPause)
			find[Begin](b)
			b.now = b.now.Add(2 * lease) // the loop stood still
		},
	} {
		t.Run(when, func(t *testing.T) {
			b := joined(t)
			b.answerRenewals(3)
			b.lapsed(true)
			read := find[Read](b)
			found(b)
			b.feed(Found{Number: read.Number, What: leaseSeen("a-1", 1)})
			b.feed(Leave{})
			for _, stop := range all[Stop](b) {
				b.feed(Stopped{stop.Number, true})
			}
			find[End](b) // it waits for no seal
			for range 3 {
				for _, w := range writes[ownership.SealLease](b) {
					t.Errorf("it asks for %+v", w.Effect)
				}
				for _, r := range all[Read](b) {
					if r.Of == (Subject{Lease: "a-1"}) {
						t.Errorf("%s is read again", r.Of.Lease)
					}
				}
				b.pass(lease / 16)
			}
		})
	}
}

func TestWhatAWatchShowsBetweenTwoIncarnationsIsRemembered(t *testing.T) {
	b := joined(t)
	b.lapsed(false)
	b.feed(Seen{What: ownership.LeaseSeen{Lease: ownership.Lease{ID: "b", Replica: "b", Duration: lease, Version: 500}}})
	seen := b.now
	b.pass(lease / 5) // later than it wanted
	begin := find[Begin](b)
	b.feed(Seen{What: ownership.LeaseSeen{Lease: ownership.Lease{ID: "b", Replica: "b", Duration: lease, Version: 500}}})
	b.feed(Listed{begin.ID})
	b.answer(find[Write](b), ownership.Committed)
	b.answerRenewals(3)
	b.now = seen.Add(lease)
	for range 3 { // until its turn comes
		b.pass(lease / 40)
	}
	if !b.seals("b") {
		t.Error("b isn't sealed a lease after it was last seen to be renewed")
	}
}

func TestAnIncarnationIsSealedOnlyIfItIsQuietAndItsLeaseLives(t *testing.T) {
	for _, c := range []struct {
		name        string
		join, quiet bool
		found       ownership.Input
		reads       int
	}{
		{"something of it may still write", true, false, nil, 0},
		{"its lease was asked for, and isn't there", false, true, ownership.LeaseGone{ID: "a-1"}, 1},
		{"a peer sealed it", true, true, ownership.LeaseSeen{Lease: ownership.Lease{ID: "a-1", Version: 900, Sealed: true}},
			1},
		{"its lease is gone", true, true, ownership.LeaseGone{ID: "a-1"}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t)
			if c.join {
				b.join()
			}
			b.lapsed(c.quiet)
			reads := all[Read](b)
			if len(reads) != c.reads {
				t.Fatalf("%d reads, want %d", len(reads), c.reads)
			}
			for _, r := range reads {
				b.feed(Found{Number: r.Number, What: c.found})
			}
			if b.seals("a-1") {
				t.Error("it is sealed")
			}
		})
	}
}

func TestTheAnswersToAnIncarnationThatIsOverSayNothingToTheNext(t *testing.T) {
	b, w := claiming(t)
	b.lapsed(false)
	b.pass(firstPause)
	b.join()
	b.answer(w, ownership.Committed)
	b.shows(ownership.Shard{Assignee: "a-2", Epoch: 1 << 40})
	again, _ := writing[ownership.WriteShard](b)
	b.answer(w, ownership.Committed)
	none[Warm](b)
	b.answer(again, ownership.Committed)
	find[Warm](b)
}

func TestAnIncarnationConcludesNothingFromAbsenceBeforeItsOwnListing(t *testing.T) {
	b := joined(t)
	b.lapsed(false)
	b.pass(firstPause)
	begin := find[Begin](b)
	b.answer(find[Write](b), ownership.Committed)
	b.shows(ownership.Shard{Assignee: "c", Holder: "c", Epoch: 4})
	b.feed(Listed{"a-1"})
	none[Read](b)
	b.feed(Listed{begin.ID})
	if read := find[Read](b); read.Of != (Subject{Lease: "c"}) {
		t.Errorf("%+v is read, want c's lease, which isn't there", read.Of)
	}
}

func TestTheNextIncarnationHasAllTheRoomForItsWrites(t *testing.T) {
	b := joined(t)
	claims := func(by ownership.Incarnation) int {
		b.showsAll(ownership.Shard{Assignee: by, Epoch: 1 << 40})
		return len(all[Write](b))
	}
	first := claims("a-1")
	b.lapsed(false)
	b.pass(firstPause)
	b.join()
	if next := claims("a-2"); first != room[ownership.Takeovers] || next != room[ownership.Takeovers] {
		t.Errorf("%d claims are on their way at once, and %d of the next incarnation, want %d", first, next,
			room[ownership.Takeovers])
	}
}

func TestThePauseBetweenIncarnationsDoublesWhileTheyDieYoung(t *testing.T) {
	b := newBench(t)
	var pauses []time.Duration
	for range 4 {
		find[Begin](b)
		b.out = nil
		b.pass(lease * 8 / 10) // its lease isn't created in time
		b.feed(Stopped{find[Stop](b).Number, true})
		pause := b.d.Wake() - b.now.Mono
		pauses = append(pauses, pause)
		b.pass(pause)
	}
	b.join()
	b.answerRenewals(5)
	b.lapsed(false)
	pauses = append(pauses, b.d.Wake()-b.now.Mono)
	const ms = time.Millisecond
	expect.Equal(t, "pauses", []time.Duration{100 * ms, 200 * ms, 400 * ms, 800 * ms, 100 * ms}, pauses)
}

// answerRenewals keeps the process a member.
func (b *bench) answerRenewals(times int) {
	b.t.Helper()
	for range times {
		b.pass(lease / 4)
		for _, w := range writes[ownership.WriteLease](b) {
			b.answer(w, ownership.Committed)
		}
	}
}

func TestACleanExitEndsWhenItsLeaseIsDropped(t *testing.T) {
	b := joined(t)
	b.feed(Leave{})
	w, e := writing[ownership.WriteLease](b)
	if !e.Lease.Leaving || !b.d.Leaving() {
		t.Errorf("it says %+v", e.Lease)
	}
	b.now = b.now.Add(time.Second)
	b.answer(w, ownership.Committed)
	w, _ = writing[ownership.DropLease](b)
	none[End](b)
	b.answer(w, ownership.Committed)
	if end := find[End](b); end.Err != nil || end.Took != time.Second {
		t.Errorf("it ends with %+v", end)
	}
}

func TestAProcessThatIsToldToLeaveBetweenTwoIncarnationsEnds(t *testing.T) {
	b := joined(t)
	b.pass(lease)
	stop := find[Stop](b)
	b.feed(Leave{})
	none[End](b)
	b.feed(Stopped{stop.Number, true})
	none[End](b) // its lease is sealed first
	b.feed(Found{Number: find[Read](b).Number, What: ownership.LeaseGone{ID: "a-1"}})
	if end := find[End](b); end.Err != nil {
		t.Errorf("it ends with %v", end.Err)
	}
	none[Begin](b)

	b = joined(t)
	b.lapsed(true)
	b.feed(Leave{})
	b.pass(lease/2 - 1)
	none[End](b)
	b.pass(1) // home is away
	find[End](b)
}

func TestASampleIsAskedForAboutTwicePerLease(t *testing.T) {
	b := joined(t)
	b.pass(0)
	find[Measure](b)
	b.pass(lease/2 - 1)
	none[Measure](b)
	b.pass(1)
	find[Measure](b)
	b.feed(Measured{ID: west})
	if b.d.TickEvery() != lease/10 {
		t.Errorf("ticks every %v", b.d.TickEvery())
	}
}

// What looks odd is read live, and only what that shows counts: an API server may lag behind another.
func TestWhatLooksAsIfHomeWentBackIsReadLiveBeforeThatIsBelieved(t *testing.T) {
	shows := func(b *bench, v ownership.Version) { b.feed(Seen{What: leaseSeen("b", v)}) }
	for _, c := range []struct {
		name  string
		odd   func(b *bench)
		shows ownership.Version
		back  bool
	}{
		{"an older version, which a live read shows, too", func(b *bench) { shows(b, 900); shows(b, 800) }, 800, true},
		{"an older version, by an API server that lags", func(b *bench) { shows(b, 900); shows(b, 800) }, 900, false},
		{"a watch that was broken", func(b *bench) { b.feed(Reconnected{}) }, 1, true},
		{"a watch that was broken, and nothing else", func(b *bench) { b.feed(Reconnected{}) }, 5000, false},
		{"a live list with an older version", func(b *bench) {
			shows(b, 900)
			b.d.list()
			b.feed(Found{Number: b.d.number, What: ownership.Listing{Leases: []ownership.Lease{{ID: "b", Version: 800}}}})
		}, 800, true},
		{"a write committed below what was seen", func(b *bench) {
			shows(b, 900)
			b.pass(lease / 4)
			b.answer(find[Write](b), ownership.Committed)
		}, 1, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := joined(t)
			b.pass(0)
			c.odd(b)
			read := find[Read](b)
			b.feed(Found{Number: read.Number, What: leaseSeen(read.Of.Lease, c.shows)})
			if stops := all[Stop](b); (len(stops) > 0) != c.back {
				t.Fatalf("stops: %+v, want one: %v", stops, c.back)
			} else if c.back {
				b.feed(Stopped{Number: stops[0].Number, Quiet: true})
				none[Read](b) // its lease isn't to be sealed early
				b.pass(lease)
				if begin := find[Begin](b); !begin.Afresh {
					t.Error("the next incarnation doesn't list anew")
				}
			}
		})
	}
}

func TestAReadThatFailsSettlesNoDoubt(t *testing.T) {
	b := joined(t)
	b.feed(Reconnected{})
	b.feed(Found{Number: find[Read](b).Number})
	none[Read](b)
	b.pass(lease / 8)
	find[Read](b)
}

func TestTheNextIncarnationIsNotToldWhatAClusterWasLikeThatIsGone(t *testing.T) {
	b := joined(t)
	b.feed(Health{Cluster: "west"})
	if !b.d.unusable["west"] {
		t.Fatal("it isn't kept for the next incarnation that a cluster can't be used")
	}
	b.feed(Clusters{})
	b.feed(Health{Cluster: "west"}) // of a probe that was under way
	b.feed(connected(2))
	if b.d.unusable["west"] {
		t.Error("it is kept although the cluster was gone meanwhile, and nobody looks at it")
	}
}

// The records of a cluster that was removed are written.
func TestAClusterThatWasNotReachedYetIsNotRemoved(t *testing.T) {
	for _, unmet := range []bool{false, true} {
		b := joined(t)
		known := connected(1)
		known.Unmet = map[keyspace.ClusterName]bool{"east": unmet}
		b.feed(known)
		dead := ownership.Lease{ID: "c", Replica: "c", Duration: lease, Protocol: 3, Sealed: true, Version: 3}
		b.feed(Seen{What: ownership.LeaseSeen{Lease: dead}})
		b.feed(Seen{What: ownership.LeadSeen{Lead: ownership.Lead{Holder: "a-1", Version: 4}}})
		b.shows(ownership.Shard{ID: keyspace.ShardID{Cluster: "east"}, Holder: "c", Epoch: 5})
		cleared := false
		for range 48 {
			b.pass(lease / 8)
			b.v++
			b.feed(Seen{What: ownership.LeaseSeen{Lease: ownership.Lease{
				ID: "b", Replica: "b", Duration: lease, Protocol: 3, Unfit: "east", Version: b.v,
			}}})
			for _, w := range all[Write](b) {
				e, _ := w.Effect.(ownership.WriteShard)
				cleared = cleared || e.Kind == ownership.Clear
				b.answer(w, ownership.Committed)
			}
		}
		if cleared == unmet {
			t.Errorf("unmet: %v; cleared: %v", unmet, cleared)
		}
	}
}

// A record may have become one that nobody can read.
func TestARecordThatCannotBeReadKeepsNoOtherFromBeingRead(t *testing.T) {
	b := joined(t)
	unreadable := Subject{Lease: "b"}
	b.d.doubts.add(unreadable)
	b.feed(Reconnected{})
	read := map[Subject]int{}
	for range 20 {
		for _, r := range all[Read](b) {
			answer := Found{Number: r.Number}
			if read[r.Of]++; r.Of == (Subject{Lease: b.d.id}) {
				answer = b.ownLease(r)
			} else if r.Of != unreadable {
				answer.What = ownership.LeadSeen{Lead: ownership.Lead{Holder: "b", Version: b.d.newest(r.Of)}}
			}
			b.feed(answer)
		}
		b.pass(lease / 40)
	}
	if read[unreadable] < 2 || read[Subject{Lease: b.d.id}] == 0 || read[Subject{}] == 0 {
		t.Errorf("reads: %v, want some of each", read)
	}
}

// The answer to a read may come after that to a write which was sent later.
func TestAReadFromBeforeTheOwnLeaseWasMadeEndsNothing(t *testing.T) {
	b := newBench(t)
	begin := find[Begin](b)
	b.feed(Listed{begin.ID})
	creation := find[Write](b)
	b.feed(Reconnected{})
	read := find[Read](b)
	if read.Of != (Subject{Lease: begin.ID}) {
		t.Fatalf("it reads %v, want its own Lease", read.Of)
	}
	b.answer(creation, ownership.Committed)
	b.feed(Found{Number: read.Number, What: ownership.LeaseGone{ID: begin.ID}})
	none[Stop](b)
}

func TestWhatAnEarlierIncarnationWasShownCountsNoMore(t *testing.T) {
	b := joined(t)
	b.feed(Seen{By: "a-0", What: ownership.LeaseGone{ID: "a-1"}})
	none[Stop](b)
	none[Read](b)
	b.feed(Seen{By: "a-1", What: ownership.LeaseGone{ID: "a-1"}})
	b.feed(Found{Number: find[Read](b).Number, What: ownership.LeaseGone{ID: "a-1"}})
	find[Stop](b)
}

// A Lease that somebody relabels leaves the watch, and is still there.
func TestAnIncarnationEndsOnlyIfALiveReadFindsNoLeaseEither(t *testing.T) {
	b := joined(t)
	b.feed(Seen{What: ownership.LeaseGone{ID: "a-1"}})
	b.feed(Found{Number: find[Read](b).Number}) // the read failed
	none[Stop](b)
	b.pass(confirmEvery)
	own := b.d.machine.NewestLease("a-1")
	b.feed(Found{Number: find[Read](b).Number,
		What: ownership.LeaseSeen{Lease: ownership.Lease{ID: "a-1", Duration: lease, Renewal: 1, Version: own + 1}}})
	none[Stop](b)
	b.pass(confirmEvery)
	none[Read](b)
}

func TestAReadFromBeforeTheCoordinatorsRecordWasMadeIsNoDeletion(t *testing.T) {
	for _, c := range []struct {
		name  string
		made  bool // while the read was under way
		again bool // the process asks for the role
	}{
		{"it isn't there", false, true},
		{"it was made meanwhile", true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t)
			b.feed(Listed{find[Begin](b).ID})
			b.answer(find[Write](b), ownership.Committed)
			w, _ := writing[ownership.WriteLead](b)
			b.answer(w, ownership.Rejected)
			read := find[Read](b)
			if c.made {
				b.feed(Seen{What: ownership.LeadSeen{Lead: ownership.Lead{Holder: "a-1", Floor: 1 << 50, Version: 300}}})
			}
			b.feed(Found{Number: read.Number, What: ownership.LeadGone{}})
			b.pass(lease / 2)
			again := slices.ContainsFunc(writes[ownership.WriteLead](b), func(w Write) bool {
				return w.Effect.(ownership.WriteLead).Base == 0
			})
			if again != c.again || b.d.Leads() != c.made {
				t.Errorf("it asks for the role again: %v, and leads: %v", again, b.d.Leads())
			}
		})
	}
}

func TestADeletionOfTheCoordinatorsRecordIsReadUntilAReadAnswers(t *testing.T) {
	b := joined(t)
	b.feed(Seen{What: ownership.LeadGone{}})
	b.feed(Found{Number: find[Read](b).Number}) // the read failed
	none[Read](b)
	b.pass(confirmEvery)
	read := find[Read](b)
	if read.Of != (Subject{}) {
		t.Fatalf("%+v is read, want the coordinator's record", read.Of)
	}
	b.feed(Found{Number: read.Number, What: ownership.LeadGone{}})
	if w, e := writing[ownership.WriteLead](b); e.Base != 0 || w.Of != nil {
		t.Errorf("%+v is written, want a new record", e)
	}
}

func TestALayoutThatSeemsToGoBackIsReadLive(t *testing.T) {
	layout := func(generation uint32, v ownership.Version) ownership.Layout {
		return ownership.Layout{Cluster: "west", Generation: generation, Version: v}
	}
	shows := func(l ownership.Layout) Event { return Seen{What: ownership.LayoutSeen{Layout: l}} }
	var gone Event = Seen{What: ownership.LayoutGone{Cluster: "west"}}
	of := Subject{Layout: "west"}
	for _, c := range []struct {
		name   string
		odd    Event
		asks   Subject
		then   []Event // before the answer
		finds  ownership.Layout
		stops  bool
		newest ownership.Version
	}{
		{"an older version", shows(layout(2, 800)), of, nil, layout(2, 800), true, 0},
		{"an older version, by an API server that lags", shows(layout(2, 800)), of, nil, layout(2, 900), false, 900},
		{"an earlier generation", shows(layout(1, 950)), Subject{Lease: "a-1"}, nil, ownership.Layout{}, false, 950},
		{"an older version in a live list", Found{What: ownership.Listing{Layouts: []ownership.Layout{layout(2, 800)}}}, of,
			nil, layout(2, 800), true, 0},
		{"it has gone", gone, of, nil, ownership.Layout{}, false, 902},
		{"it has gone, by an API server that lags", gone, of, nil, layout(2, 900), false, 900},
		{"it has gone, and was made anew meanwhile", gone, of, []Event{shows(layout(3, 950))},
			ownership.Layout{}, false, 950},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := joined(t)
			b.feed(shows(layout(2, 900)))
			if l, listed := c.odd.(Found); listed {
				b.d.list()
				l.Number = b.d.number
				c.odd = l
			}
			b.feed(c.odd)
			read := find[Read](b)
			if read.Of != c.asks {
				t.Fatalf("it reads %+v, want %+v", read.Of, c.asks)
			}
			if c.odd == gone && b.d.newest(of) != 900 {
				t.Error("it believes in the deletion before it has asked")
			}
			for _, e := range c.then {
				b.feed(e)
			}
			if c.asks == of {
				b.feed(Found{Number: read.Number, What: ownership.LayoutRead{Cluster: "west", Layout: c.finds}})
			}
			if stops := len(all[Stop](b)) > 0; stops != c.stops {
				t.Fatalf("it ends: %v", stops)
			}
			if newest := b.d.newest(of); newest != c.newest {
				t.Errorf("the newest version is %d, want %d", newest, c.newest)
			}
		})
	}
}

func TestWhatAWatchShowsInAnOlderVersionIsReadThoughMuchElseIs(t *testing.T) {
	b := joined(t)
	for i := range 2 * mostDoubts {
		b.d.doubts.of = append(b.d.doubts.of, Subject{Lease: ownership.Incarnation(fmt.Sprint("held-", i))})
	}
	for i := range 2 * mostDoubts {
		id := ownership.Incarnation(fmt.Sprint("b-", i))
		b.feed(Seen{What: leaseSeen(id, 900)})
		b.feed(Seen{What: leaseSeen(id, 800)})
	}
	if more := len(b.d.doubts.of) - 2*mostDoubts; more != mostDoubts {
		t.Errorf("of %d records in older versions, %d are to be read, want %d", 2*mostDoubts, more, mostDoubts)
	}
}

// A watch begins anew every few minutes, at a replica that may hold ten thousand shards.
func TestWhatIsDoubtedIsQueuedOnceHoweverMuchItIs(t *testing.T) {
	const held = 100_000
	var d doubts
	began := time.Now()
	for range 2 {
		for i := range held {
			d.add(Subject{Lease: ownership.Incarnation(fmt.Sprint("held-", i))})
		}
	}
	if len(d.of) != held || d.of[7] != (Subject{Lease: "held-7"}) {
		t.Errorf("%d are queued, want %d, in order", len(d.of), held)
	}
	if took := time.Since(began); took > 20*time.Second { // a fraction of one; comparing all with all takes minutes
		t.Errorf("that takes %v", took)
	}
}

func TestShardsGoColdBeforeTheProcessGivesUpLeaving(t *testing.T) {
	for _, drain := range []time.Duration{lease / 4, lease, 2 * lease, 10 * lease} {
		cfg := Config{Protocol: ownership.DefaultConfig("a", "a", lease), DrainTimeout: drain}
		d := New(cfg)
		if cold := d.cfg.Protocol.LeaveTimeout; cold > d.leaveTimeout()*2/3 || cold > cfg.Protocol.LeaveTimeout {
			t.Errorf("with %v for drains, shards go cold after %v, and the process gives up after %v", drain, cold,
				d.leaveTimeout())
		}
	}
}

func TestAShortLeaseLeavesTimeForAReconcileThatIgnoresItsContext(t *testing.T) {
	for _, of := range []time.Duration{time.Second, 5 * time.Second, time.Minute} {
		d := New(Config{Protocol: ownership.DefaultConfig("a", "a", of), DrainTimeout: lease})
		if left := d.leaveTimeout() - lease; left < 7*time.Second || left < of {
			t.Errorf("with a lease of %v, a process has %v for handoffs after its drains", of, left)
		}
	}
}
