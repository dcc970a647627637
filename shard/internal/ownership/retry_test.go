package ownership

import (
	"fmt"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/shard/keyspace"
	"github.com/tenure-dev/tenure/test/expect"
)

func TestEachRepeatWaitsTwiceAsLongWithinBoundsThatTheCauseSets(t *testing.T) {
	const ms = time.Millisecond
	cfg := DefaultConfig("a", "a", lease)
	for _, c := range []struct {
		name   string
		cause  Cause
		asked  time.Duration
		random float64
		want   []time.Duration
	}{
		{"no answer", Lost, 0, 0, []time.Duration{250 * ms, 500 * ms, 1000 * ms, 2000 * ms, 2000 * ms}},
		{"refused for good", Refused, 0, 0, []time.Duration{250 * ms, 500 * ms, 1000 * ms, 2000 * ms, 4000 * ms,
			5000 * ms, 5000 * ms}},
		{"spread", Failed, 0, 0.5, []time.Duration{187500 * time.Microsecond, 375 * ms, 750 * ms, 1500 * ms}},
		{"what the API server asks for", Overloaded, 3 * time.Second, 0, []time.Duration{3000 * ms, 3000 * ms}},
		{"that, spread", Overloaded, 3 * time.Second, 0.5, []time.Duration{3750 * ms}},
		{"more than makes sense", Overloaded, time.Hour, 0, []time.Duration{5000 * ms}},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg.Random = func() float64 { return c.random }
			var got []time.Duration
			for tries := range c.want {
				got = append(got, cfg.Backoff(tries, c.cause, c.asked))
			}
			expect.Equal(t, "pauses", c.want, got)
		})
	}
	if got := cfg.Backoff(1000, Lost, 0); got != 2*time.Second {
		t.Errorf("after very many tries it waits %v", got)
	}
}

func TestAHomeClusterThatRefusesHalfOfAllWritesLeavesEachRenewalTwentyTries(t *testing.T) {
	for _, in := range []Written{
		{Outcome: Unknown, Cause: Overloaded, After: time.Second}, {Outcome: Unknown, Cause: Failed},
		{Outcome: Rejected, Cause: Refused},
	} {
		b := newBench(t)
		b.pass(lease / 4)
		tries := 0
		for b.r.Valid(b.now) && tries <= 40 {
			for _, w := range all[WriteLease](b) {
				tries++
				in.Seq = w.Seq
				b.feed(in)
			}
			b.pass(max(b.r.Wake()-b.now.Mono, time.Millisecond))
		}
		if tries < 20 || tries > 40 {
			t.Errorf("%+v: %d tries until it lapses, want 20 or somewhat more", in, tries)
		}
	}
}

func TestARenewalThatIsCommittedBeginsItsBackoffAnew(t *testing.T) {
	b := newBench(t)
	wait := func() time.Duration {
		w := find[WriteLease](b)
		b.feed(Written{Seq: w.Seq, Outcome: Unknown})
		return b.r.Wake() - b.now.Mono
	}
	b.pass(lease / 4)
	first := wait()
	b.pass(first)
	if second := wait(); second != 2*first {
		t.Errorf("it waits %v, then %v", first, second)
	}
	b.pass(2 * first)
	b.commit(find[WriteLease](b).Seq)
	b.pass(lease / 4)
	if again := wait(); again != first {
		t.Errorf("after a renewal it waits %v, want %v", again, first)
	}
}

// refusing returns a machine that has asked to claim so many shards, and lets nothing but renewals through for a while.
// It counts the writes that were refused in the last half of that.
func refusing(t *testing.T, shards int, d time.Duration) (b *bench, refused int) {
	t.Helper()
	b = newBench(t)
	for i := range shards {
		cluster := keyspace.ClusterName(fmt.Sprintf("c%03d", i))
		b.seen(Shard{ID: keyspace.ShardID{Cluster: cluster}, Assignee: "a", Epoch: 1})
	}
	clusters := map[keyspace.ClusterName]int{}
	for _, rec := range b.r.order {
		clusters[rec.id.Cluster] = 0
	}
	b.feed(Clusters{Bits: clusters})
	for until := b.now.Add(d); b.now.AtLeast(until) < 0; b.pass(20 * time.Millisecond) {
		b.commitRenewals()
		for _, w := range all[WriteShard](b) {
			b.feed(Written{Seq: w.Seq, Outcome: Rejected, Cause: Refused})
			if until.AtLeast(b.now) < d/2 {
				refused++
			}
		}
	}
	return b, refused
}

func TestHoweverManyWritesAreRefusedTheRepeatsAreFew(t *testing.T) {
	for _, shards := range []int{1, 100} {
		if _, refused := refusing(t, shards, time.Minute); refused == 0 || refused > 30 {
			t.Errorf("%d shards: %d writes in 30 s were refused, want one a second at most, and some", shards, refused)
		}
	}
}

func TestWhatIsCommittedLetsTheOthersGoOnAtOnce(t *testing.T) {
	b, _ := refusing(t, 100, time.Minute)
	committed := map[keyspace.ShardID]bool{}
	for began := b.now; len(committed) < 100; b.pass(20 * time.Millisecond) {
		if b.now.AtLeast(began) > 6*time.Second {
			t.Fatalf("6 s after the home cluster takes writes again, %d of 100 are committed", len(committed))
		}
		b.commitRenewals()
		for i, w := range all[WriteShard](b) {
			if i%2 == 1 { // as many are refused for now
				b.feed(Written{Seq: w.Seq, Outcome: Unknown, Cause: Overloaded})
				continue
			}
			b.commit(w.Seq)
			committed[w.Shard.ID] = true
		}
	}
}

func TestWhatEndsATimeWithoutServiceIsRepeatedFirst(t *testing.T) {
	b := newBench(t)
	east := keyspace.ShardID{Cluster: "east"}
	b.feed(Clusters{Bits: map[keyspace.ClusterName]int{"east": 0, "west": 0}})
	b.seen(Shard{Assignee: "a", Holder: "b", Epoch: 1})
	b.feed(Warmed{west})
	word := find[WriteShard](b)
	b.feed(ShardSeen{Shard{ID: east, Assignee: "a", Epoch: 1, Floor: 1, Version: 900}})
	claim := find[WriteShard](b)
	for _, w := range []WriteShard{word, claim} {
		b.feed(Written{Seq: w.Seq, Outcome: Unknown})
	}
	b.r.budget = repeats{next: b.now}
	b.pass(lease / 4)
	again := all[WriteShard](b)
	if len(again) != 1 || again[0].Kind != ClaimFree {
		t.Errorf("of a claim and a word of being warm, and one repeat, it sends %+v", again)
	}
}

func TestALaneIsChosenByWhatWaitsForTheWrite(t *testing.T) {
	for _, c := range []struct {
		effect Effect
		want   Lane
	}{
		{WriteLease{}, Renewals}, {DropLease{}, Renewals},
		{SealLease{}, Takeovers}, {WriteLead{}, Takeovers}, {WriteShard{Kind: ClaimDead}, Takeovers},
		{WriteShard{Kind: ClaimFree}, Takeovers}, {WriteShard{Kind: HandOff}, Takeovers},
		{WriteShard{Kind: HandOffOnExit}, Takeovers}, {WriteShard{Kind: Release}, Takeovers},
		{WriteShard{Kind: AnnounceWarm}, Others}, {WriteShard{Kind: Report}, Others},
		{WriteShard{Kind: Clear}, Others},
		{WriteAssignee{}, Others}, {CreateShard{}, Others},
	} {
		if got := LaneOf(c.effect); got != c.want {
			t.Errorf("%T %+v goes by lane %d, want %d", c.effect, c.effect, got, c.want)
		}
	}
}

// handingOff has the machine hand west off to b, and hold another shard.
func handingOff(t *testing.T) (b *bench, handoff WriteShard, other Shard) {
	t.Helper()
	b = newBench(t)
	b.feed(Clusters{Bits: map[keyspace.ClusterName]int{"east": 0, "west": 0}})
	b.served()
	other = Shard{ID: keyspace.ShardID{Cluster: "east"}, Assignee: "a", Holder: "a", Epoch: 1, Floor: 1, Version: 500}
	b.feed(ShardSeen{other})
	b.feed(Warmed{other.ID})
	b.seen(Shard{Assignee: "b", Holder: "a", Epoch: 1, Warm: "b"})
	find[Drain](b)
	b.feed(Drained{west})
	return b, find[WriteShard](b), other
}

// What is drained isn't served until its handoff is committed. But a conflict is about one record, which changed and
// can't be read: it says nothing about the home cluster.
func TestWhileHandoffsAreRefusedNothingElseIsDrained(t *testing.T) {
	for cause, waits := range map[Cause]bool{Refused: true, Conflict: false} {
		b, handoff, other := handingOff(t)
		b.feed(Written{Seq: handoff.Seq, Outcome: Rejected, Cause: cause})
		b.pass(time.Second)
		b.feed(Written{Seq: handoff.Seq, Outcome: Rejected, Cause: cause})
		other.Assignee, other.Warm, other.Version = "b", "b", 501
		b.feed(ShardSeen{other})
		b.now = b.now.Add(lease * 3 / 5) // others are waited for no longer than half of that
		b.says("b", "")
		b.commitRenewals()
		if waits {
			none[Drain](b)
			b.pass(time.Second)
			b.commit(find[WriteShard](b).Seq)
		}
		if drain := find[Drain](b); drain.ID != other.ID {
			t.Errorf("%v: it drains %s", cause, drain.ID)
		}
	}
}
