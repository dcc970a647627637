package machine

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestTheMachinesTimeIsReadWithoutItsIdleOne(t *testing.T) {
	got, ok := parse("cpu  100 20 30 400 50 6 7 8 0 0")
	want := Times{Busy: 1710 * time.Millisecond, Stolen: 80 * time.Millisecond, All: 6210 * time.Millisecond}
	if diff := cmp.Diff(want, got); !ok || diff != "" {
		t.Errorf("%v (-want +got):\n%s", ok, diff)
	}
	for _, bad := range []string{"", "cpu 1 2", "intr 1 2 3 4 5 6 7 8 9", "cpu a b c d e f g h"} {
		if _, ok := parse(bad); ok {
			t.Errorf("%q was read", bad)
		}
	}
}

func TestSharesAreOfTheTimeBetween(t *testing.T) {
	before := Times{Busy: 10 * time.Second, Stolen: time.Second, All: 100 * time.Second}
	after := Times{Busy: 40 * time.Second, Stolen: 11 * time.Second, All: 140 * time.Second}
	if got, want := after.Since(before).String(), "75 % busy, of which the hypervisor gave 25 % to others"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := after.Since(after).String(), "0 % busy, of which the hypervisor gave 0 % to others"; got != want {
		t.Errorf("got %q for no time at all, want %q", got, want)
	}
}
