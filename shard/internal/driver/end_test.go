package driver

import (
	"testing"
	"time"

	"github.com/tenure-dev/tenure/shard/internal/ownership"
)

// leaving returns a process that leaves, with the write that drops its lease.
func leaving(t *testing.T) (*bench, Write) {
	t.Helper()
	b := joined(t)
	b.feed(Leave{})
	b.answer(find[Write](b), ownership.Committed)
	w, _ := writing[ownership.DropLease](b)
	return b, w
}

func TestALeaseThatCannotBeDroppedIsNotSealedWhereHomeHasGoneBack(t *testing.T) {
	b, w := leaving(t)
	b.answer(w, ownership.Unknown)
	b.pass(lease / 40)
	b.feed(Found{Number: find[Read](b).Number, What: ownership.LeaseSeen{Lease: ownership.Lease{ID: "a-1", Version: 900,
		Renewal: 1}}})
	none[Write](b)
	find[End](b)
}

func TestAProcessThatLeavesWhileHomeGoesBackSealsNothing(t *testing.T) {
	b := joined(t)
	b.lapsed(true)
	read := find[Read](b)
	b.pass(firstPause)
	b.join()
	b.feed(Leave{})
	b.answer(find[Write](b), ownership.Committed)
	w, _ := writing[ownership.DropLease](b)
	b.feed(Found{Number: read.Number, What: leaseSeen("a-1", 1)})
	b.answer(w, ownership.Unknown)
	find[End](b)
	none[Read](b)
	none[Write](b)
}

// Every end in order leaves a lease that is dropped or sealed: the others need not wait for it to run out.
func TestEveryOrderlyEndDropsItsLeaseOrSealsIt(t *testing.T) {
	tooLong := func(t *testing.T) *bench {
		b := joined(t)
		b.served()
		b.feed(Leave{})
		for range 3 * 8 {
			for _, w := range writes[ownership.WriteLease](b) {
				b.answer(w, ownership.Committed)
			}
			none[Stop](b)
			b.pass(lease / 8)
		}
		return b
	}
	stopped := func(b *bench, quiet bool) { b.feed(Stopped{find[Stop](b).Number, quiet}) }
	for _, c := range []struct {
		name    string
		end     func(*testing.T) *bench
		dropped bool
		sealed  bool
		failed  bool
	}{
		{"it has left", func(t *testing.T) *bench {
			b, w := leaving(t)
			b.answer(w, ownership.Committed)
			return b
		}, true, false, false},
		{"it has left, and its lease can't be dropped", func(t *testing.T) *bench {
			b, w := leaving(t)
			b.answer(w, ownership.Unknown)
			return b
		}, false, true, false},
		{"leaving takes too long", func(t *testing.T) *bench {
			b := tooLong(t)
			stopped(b, true)
			return b
		}, false, true, true},
		{"that, and it is ended before its work has stopped", func(t *testing.T) *bench {
			b := tooLong(t)
			stop := find[Stop](b)
			b.feed(Quit{})
			b.feed(Stopped{stop.Number, true})
			return b
		}, false, true, true},
		{"it is ended without time to leave", func(t *testing.T) *bench {
			b := joined(t)
			b.feed(Quit{})
			stopped(b, true)
			return b
		}, false, true, false},
		{"that, and something of it still runs", func(t *testing.T) *bench {
			b := joined(t)
			b.feed(Quit{})
			stopped(b, false)
			return b
		}, false, false, false},
		{"it is ended before it hears that it is a member", func(t *testing.T) *bench {
			b := newBench(t)
			find[Begin](b)
			b.feed(Quit{})
			stopped(b, true)
			return b
		}, false, true, false},
		{"it is ended between two incarnations", func(t *testing.T) *bench {
			b := joined(t)
			b.lapsed(true)
			b.feed(Quit{})
			return b
		}, false, true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := c.end(t)
			sealed := 0
			for range 40 { // no longer than half a lease; the first seal is lost
				for _, r := range all[Read](b) {
					b.feed(Found{Number: r.Number, What: leaseSeen("a-1", 900)})
				}
				for _, w := range writes[ownership.SealLease](b) {
					none[End](b)
					sealed++
					b.answer(w, map[bool]ownership.Outcome{true: ownership.Unknown, false: ownership.Committed}[sealed == 1])
				}
				b.pass(lease / 80)
			}
			end := find[End](b)
			if (sealed == 2) != c.sealed || (end.Err != nil) != c.failed || (c.dropped && sealed > 0) {
				t.Errorf("sealed with %d writes, and it ends with %v", sealed, end.Err)
			}
			none[Begin](b)
		})
	}
}

func TestAnEndDoesNotWaitForeverForASealThatCannotBeMade(t *testing.T) {
	b := joined(t)
	b.feed(Quit{})
	b.feed(Stopped{find[Stop](b).Number, true})
	began := b.now
	for b.now.AtLeast(began) < lease/2 {
		none[End](b)
		for _, r := range all[Read](b) {
			b.feed(Found{Number: r.Number})
		}
		b.pass(min(100*time.Millisecond, lease/2-b.now.AtLeast(began)))
	}
	find[End](b)
}

// A process may have to wait before it begins: for a fleet that it can join.
func TestAProcessThatHasNotBegunWaitsQuietlyAndEndsAtOnce(t *testing.T) {
	for name, end := range map[string]Event{"it is told to leave": Leave{}, "it is ended": Quit{}} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.d, b.out = New(b.d.cfg), nil
			b.feed(connected(1))
			if wake := b.d.Wake(); wake < b.now.Mono+time.Minute {
				t.Errorf("it wants to be woken in %v", wake-b.now.Mono)
			}
			b.feed(end)
			if e := find[End](b); e.Err != nil || e.Took != 0 {
				t.Errorf("it ends with %+v", e)
			}
			b.feed(Start{}) // too late
			none[Begin](b)
		})
	}
}
