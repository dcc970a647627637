package machine

import (
	"testing"
	"time"

	"github.com/prometheus/procfs"

	"github.com/tenure-dev/tenure/test/expect"
)

func TestTheMachinesTimeIsReadWithoutItsIdleOne(t *testing.T) {
	got := timesOf(procfs.CPUStat{User: 1, Nice: .5, System: .25, Idle: 4, Iowait: .5, IRQ: .125, SoftIRQ: .125,
		Steal: 1, Guest: 9})
	expect.Equal(t, "times", Times{Busy: 3 * time.Second, Stolen: time.Second, All: 7500 * time.Millisecond}, got)
	if now, ok := Now(); !ok || now.Busy <= 0 || now.Busy > now.All {
		t.Errorf("this machine: %+v, %v", now, ok)
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
