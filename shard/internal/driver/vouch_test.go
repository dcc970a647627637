package driver

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/shard/internal/ownership"
	"github.com/tenure-dev/tenure/shard/keyspace"
)

// taking returns a process that wants to claim a shard, when it last renewed its lease too long ago.
func taking(t *testing.T) *bench {
	t.Helper()
	b := joined(t)
	b.unvouched = true
	b.now = b.now.Add(vouchFor)
	b.shows(ownership.Shard{Assignee: "a-1", Epoch: 4, UID: "u"})
	return b
}

// takes reports whether any of the writes since it was last looked needs the proof.
func takes(b *bench) bool {
	return slices.ContainsFunc(all[Write](b), func(w Write) bool { return needsProof(w.Effect, false) })
}

func TestR5NothingIsTakenBeforeTheHomeClusterHasShownTheLastRenewal(t *testing.T) {
	gone := func(b *bench, read Read) Found {
		return Found{Number: read.Number, What: ownership.LeaseGone{ID: read.Of.Lease}}
	}
	older := func(b *bench, read Read) Found {
		found := b.ownLease(read)
		l := found.What.(ownership.LeaseSeen).Lease
		l.Version--
		return Found{Number: read.Number, What: ownership.LeaseSeen{Lease: l}}
	}
	for _, c := range []struct {
		name          string
		found         func(b *bench, read Read) Found
		claims, stops bool
	}{
		{"it is shown", (*bench).ownLease, true, false},
		{"an earlier one is shown", older, false, true},
		{"the lease isn't there", gone, false, true},
		{"no answer", func(_ *bench, read Read) Found { return Found{Number: read.Number} }, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := taking(t)
			none[Write](b)
			b.feed(c.found(b, find[Read](b)))
			claims := takes(b)
			if stops := len(all[Stop](b)) > 0; claims != c.claims || stops != c.stops {
				t.Errorf("it claims: %v, and ends: %v", claims, stops)
			}
		})
	}
}

func TestALostReadOfTheOwnLeaseIsRepeated(t *testing.T) {
	b := taking(t)
	b.feed(Found{Number: find[Read](b).Number})
	none[Read](b)
	if wake := b.d.Wake(); wake > b.now.Mono+lease/40 {
		t.Errorf("it wants to be woken in %v", wake-b.now.Mono)
	}
	b.pass(lease / 40)
	b.feed(b.ownLease(find[Read](b)))
	writing[ownership.WriteShard](b)
}

// The home cluster may have gone back between an answer and its handling.
func TestR5AnAnswerThatMayHaveWaitedWhileTheProcessStoodStillIsNoProof(t *testing.T) {
	for name, c := range map[string]struct {
		pause  time.Duration
		proves bool
	}{
		"it went on":        {vouchFor / 2, true},
		"it stood still":    {2 * time.Second, false},
		"for a moment":      {vouchFor, true},
		"a little too long": {vouchFor + 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			b := taking(t)
			read := find[Read](b)
			for waited := time.Duration(0); waited < 2*time.Second; waited += c.pause {
				if in := b.d.Wake() - b.now.Mono; in > vouchFor/2 {
					t.Errorf("it wants to be woken in %v, so standing still can't be told from having nothing to do", in)
				}
				b.pass(c.pause)
			}
			all[Write](b)
			b.feed(b.ownLease(read))
			if c.proves {
				writing[ownership.WriteShard](b)
				return
			}
			if takes(b) {
				t.Error("it takes the shard")
			}
			b.feed(b.ownLease(find[Read](b)))
			writing[ownership.WriteShard](b)
		})
	}
}

// Where more claims wait than may be in flight, they don't stop each time that a proof expires.
func TestWhileClaimsWaitForRoomTheNextProofIsRequestedAhead(t *testing.T) {
	for name, c := range map[string]struct {
		shards int
		after  time.Duration
		asks   bool
	}{
		"early":        {room[ownership.Takeovers] + 2, vouchFor/2 - 1, false},
		"half is over": {room[ownership.Takeovers] + 2, vouchFor / 2, true},
		"none waits":   {room[ownership.Takeovers] + 1, vouchFor / 2, false},
	} {
		t.Run(name, func(t *testing.T) {
			b := joined(t)
			b.unvouched = true
			b.pass(lease / 4)
			b.answer(find[Write](b), ownership.Committed) // the renewal proves it for now
			for _, p := range keyspace.Partition(8)[:c.shards] {
				id := keyspace.ShardID{Cluster: "west", Prefix: p}
				b.shows(ownership.Shard{ID: id, Assignee: "a-1", Epoch: 4, UID: "u"})
			}
			claims := all[Write](b)
			b.now = b.now.Add(c.after)
			b.answer(claims[0], ownership.Committed)
			writing[ownership.WriteShard](b)
			read, asks := b.vouching()
			if asks != c.asks {
				t.Fatalf("%v after the last proof the next is requested: %v", c.after, asks)
			}
			if asks {
				b.feed(b.ownLease(read))
				b.now = b.now.Add(vouchFor / 2) // the proof before has expired
				b.answer(claims[1], ownership.Committed)
				writing[ownership.WriteShard](b)
			}
		})
	}
}

// Thousands of events may be handled between an answer and its own handling.
func TestR5AnAnswerIsProofFromWhenItCame(t *testing.T) {
	for name, c := range map[string]struct {
		waited time.Duration
		proves bool
	}{"it has just come": {vouchFor - 1, true}, "it has waited": {vouchFor, false}} {
		t.Run(name, func(t *testing.T) {
			b := taking(t)
			answer := b.ownLease(find[Read](b))
			answer.At = b.now
			b.pass(c.waited / 2)
			b.pass(c.waited - c.waited/2)
			b.feed(answer)
			if proves := takes(b); proves != c.proves {
				t.Errorf("it takes the shard: %v", proves)
			}
		})
	}
}

func TestARenewalVouchesForAWhile(t *testing.T) {
	b := joined(t)
	b.unvouched = true
	b.pass(lease / 4)
	b.answer(find[Write](b), ownership.Committed)
	b.now = b.now.Add(vouchFor - time.Millisecond)
	b.shows(ownership.Shard{Assignee: "a-1", Epoch: 4, UID: "u"})
	writing[ownership.WriteShard](b)
	none[Read](b)
}

func TestAClaimThatWaitsForThatIsDroppedWhereTheClusterIsNotReachedAnyMore(t *testing.T) {
	b := taking(t)
	b.feed(Health{"west", false})
	b.feed(b.ownLease(find[Read](b)))
	if takes(b) {
		t.Error("it takes the shard")
	}
}

func TestTheLeaseOfAForgottenIncarnationSaysNothing(t *testing.T) {
	b := joined(t)
	b.lapsed(false)
	b.unvouched = true
	b.pass(firstPause)
	b.join()
	b.shows(ownership.Shard{Assignee: "a-2", Epoch: 1 << 40, UID: "u"})
	read, _ := b.vouching()
	if read.Of.Lease != "a-1" {
		t.Fatalf("%+v is read, want the last incarnation's lease", read.Of)
	}
	b.d.past = nil // as where the home cluster went back meanwhile
	b.feed(Found{Number: read.Number, What: ownership.LeaseGone{ID: "a-1"}})
	none[Stop](b)
}

// What an incarnation knew is gone with it. So the next one has the home cluster show that it still has that.
func TestR5TheNextIncarnationTakesNothingBeforeTheHomeClusterHasShownTheLastOnesLease(t *testing.T) {
	for _, c := range []struct {
		name          string
		found         func(past) (ownership.Version, uint64) // the last one's lease, and its renewal; 0: it isn't there
		stops, claims bool
	}{
		{"as it was", func(p past) (ownership.Version, uint64) { return p.version, p.renewal }, false, true},
		{"a user wrote it since", func(p past) (ownership.Version, uint64) { return p.version + 1, p.renewal }, false, true},
		{"an earlier one", func(p past) (ownership.Version, uint64) { return p.version - 1, p.renewal - 1 }, true, false},
		{"an earlier one of the same renewal, which a user wrote in the lost history",
			func(p past) (ownership.Version, uint64) { return p.version - 1, p.renewal }, true, false},
		{"an earlier one, which a user wrote since",
			func(p past) (ownership.Version, uint64) { return p.version + 1, p.renewal - 1 }, true, false},
		{"none", func(past) (ownership.Version, uint64) { return 0, 0 }, true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := joined(t)
			b.answerRenewals(2)
			b.lapsed(false) // after this home cluster has been watched for long enough
			b.unvouched = true
			b.pass(firstPause)
			begin := find[Begin](b)
			b.feed(Seen{What: ownership.LeaseSeen{Lease: ownership.Lease{ID: "b", Replica: "b", Duration: lease, Version: 1}}})
			b.shows(ownership.Shard{Assignee: begin.ID, Epoch: 4, UID: "u"})
			b.feed(Listed{begin.ID})
			b.answer(find[Write](b), ownership.Committed)
			read, _ := b.vouching()
			if read.Of.Lease != "a-1" {
				t.Fatalf("%+v is read, want the last incarnation's lease", read.Of)
			}
			found := Found{Number: read.Number, What: ownership.LeaseGone{ID: "a-1"}}
			if version, renewal := c.found(b.d.past[0]); version > 0 {
				found.What = ownership.LeaseSeen{Lease: ownership.Lease{ID: "a-1", Duration: lease, Version: version,
					Renewal: renewal}}
			}
			b.unvouched = false
			b.feed(found)
			for _, w := range writes[ownership.WriteLead](b) { // raises the floor, above which it may claim
				b.answer(w, ownership.Committed)
			}
			claims := slices.ContainsFunc(writes[ownership.WriteShard](b), func(w Write) bool {
				return w.Effect.(ownership.WriteShard).Kind.Claims()
			})
			stops := all[Stop](b)
			if len(stops) > 0 != c.stops || claims != c.claims {
				t.Errorf("it ends: %v, claims: %v", stops, claims)
			}
			for _, s := range stops {
				_, missing := found.What.(ownership.LeaseGone)
				if s.Blank != missing || strings.HasPrefix(s.Reason, "the home cluster went back: ") == missing {
					t.Errorf("it ends as %+v; missing: %v", s, missing)
				}
			}
		})
	}
}

func TestAnEarlierLeaseThatIsMissingCountsThoughTheIncarnationLapsesAsItHears(t *testing.T) {
	b := joined(t)
	b.answerRenewals(2)
	b.lapsed(false)
	b.unvouched = true
	b.pass(firstPause)
	b.join()
	read, _ := b.vouching()
	b.now = b.now.Add(2 * lease) // the loop stood still
	b.feed(Found{Number: read.Number, What: ownership.LeaseGone{ID: "a-1"}})
	b.feed(Stopped{find[Stop](b).Number, false})
	b.pass(2 * firstPause)
	if begin := find[Begin](b); !begin.Afresh {
		t.Error("the next incarnation relies on what the lost history has shown")
	}
}

// What the watch showed of another history is no sign that it shows what is written now.
func TestALowerVersionThanBeforeForgetsWhatTheWatchHasShown(t *testing.T) {
	b := joined(t)
	b.feed(Seen{What: ownership.ShardSeen{Shard: ownership.Shard{ID: west, Assignee: "b", Holder: "b",
		Epoch: 4, Version: 900}}})
	if b.d.echoes.shown != 900 {
		t.Fatalf("the watch has shown version %d", b.d.echoes.shown)
	}
	b.answerRenewals(1)
	if b.d.echoes.shown != 0 {
		t.Errorf("after version %d, what the watch had shown counts up to version %d", b.v, b.d.echoes.shown)
	}
}

func TestR5WhichWritesNeedTheProof(t *testing.T) {
	for _, c := range []struct {
		effect       ownership.Effect
		first, again bool // whether it needs the proof when it is sent first, and when it is repeated
	}{
		{ownership.SealLease{}, true, true}, {ownership.CreateShard{}, true, true},
		{ownership.WriteLayout{}, true, true}, {ownership.WriteShard{Kind: ownership.Retire}, true, true},
		{ownership.WriteShard{Kind: ownership.Clear}, true, true},
		{ownership.WriteShard{Kind: ownership.ClaimFree}, true, true},
		{ownership.WriteShard{Kind: ownership.ClaimDead}, true, true},
		{given(ownership.HandOff, "b-1"), false, true}, {given(ownership.HandOffOnExit, "b-1"), false, true},
		{given(ownership.Release, ""), false, true}, {given(ownership.Report, "a-1"), false, false},
		{given(ownership.AnnounceWarm, "a-1"), false, false},
		{ownership.WriteLead{}, false, false}, {ownership.WriteAssignee{}, false, false},
	} {
		for again, want := range map[bool]bool{false: c.first, true: c.again} {
			if needsProof(c.effect, again) != want {
				t.Errorf("%+v, repeated: %v: want %v", c.effect, again, want)
			}
		}
	}
}

// given is a write by which a-1 says who is to hold a shard of its own.
func given(kind ownership.WriteKind, to ownership.Incarnation) ownership.WriteShard {
	return ownership.WriteShard{Kind: kind, From: "a-1", Shard: ownership.Shard{Holder: to}}
}
