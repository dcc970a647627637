package run

import (
	"fmt"
	"syscall"
	"time"

	"github.com/tenure-dev/tenure/bench/machine"
	"github.com/tenure-dev/tenure/bench/report"
)

// usage is how much CPU time was spent, by everybody and by this process and the children it has waited for.
type usage struct {
	machine machine.Times
	ours    time.Duration
}

// usageNow reads it. The machine's part is zero where the system doesn't tell.
func usageNow() (u usage) {
	u.machine, _ = machine.Now()
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var r syscall.Rusage
		if err := syscall.Getrusage(who, &r); err != nil {
			return usage{}
		}
		u.ours += time.Duration(r.Utime.Nano() + r.Stime.Nano())
	}
	return u
}

// others is the share of the machine that other programs had between two moments; ok is false if the machine doesn't
// say.
func others(before, after usage) (share float64, ok bool) {
	between := after.machine.Since(before.machine)
	if before.machine.All == 0 || between.All <= 0 {
		return 0, false
	}
	return max(0, float64(between.Busy-(after.ours-before.ours))/float64(between.All)), true
}

// judgeMachine warns where other programs were at work. The children must have been waited for.
func (r *runner) judgeMachine(before usage) {
	share, known := others(before, usageNow())
	if !known {
		return
	}
	r.report.Environment.Others = &share
	if share > report.MaxOthers {
		r.report.Warnings = append(r.report.Warnings, fmt.Sprintf(
			"other programs took %.0f %% of the machine: the figures are not to be published, ratios have wide intervals",
			100*share))
	}
}
