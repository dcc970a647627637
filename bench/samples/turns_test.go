package samples

import (
	"testing"
	"time"
)

func TestEverybodyHasOneTurnInEachLotInVaryingOrder(t *testing.T) {
	const length, among = 2 * time.Second, 3
	at := time.Unix(1700000000, 0)
	at = TurnAt(at, length, among).To
	for TurnAt(at, length, among).Lot == TurnAt(at.Add(-length), length, among).Lot {
		at = at.Add(length) // to the start of a lot
	}
	first := map[int]int{}
	for range 300 {
		seen := map[int]bool{}
		lot := TurnAt(at, length, among).Lot
		for i := range among {
			turn := TurnAt(at, length, among)
			if !turn.From.Equal(at) || turn.To.Sub(turn.From) != length || turn.Lot != lot {
				t.Fatalf("at %v: %+v, want lot %d", at, turn, lot)
			}
			if later := TurnAt(turn.To.Add(-1), length, among); later != turn {
				t.Fatalf("%+v becomes %+v before its end", turn, later)
			}
			if i == 0 {
				first[turn.Slot]++
			}
			seen[turn.Slot] = true
			at = turn.To
		}
		if len(seen) != among {
			t.Fatalf("lot %d has turns of %v only", lot, seen)
		}
	}
	for slot := range among {
		if first[slot] < 60 {
			t.Errorf("slot %d was first in %d of 300 lots", slot, first[slot])
		}
	}
}
