package run

import (
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// maxOthers is the share of the machine that other programs may take before a run is warned about: beyond it,
// absolute figures are as much theirs as ours, and queues that never form on a free machine do.
const maxOthers = 0.10

// usage is how much CPU time was spent, by everybody and by this process and the children it has waited for.
type usage struct{ busy, all, ours time.Duration }

// usageNow reads it. ok is false where the system doesn't tell.
func usageNow() (u usage, ok bool) {
	first, _, _ := strings.Cut(read("/proc/stat"), "\n")
	u.busy, u.all, ok = parseCPU(first)
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var r syscall.Rusage
		if err := syscall.Getrusage(who, &r); err != nil {
			return u, false
		}
		u.ours += time.Duration(r.Utime.Nano() + r.Stime.Nano())
	}
	return u, ok
}

// parseCPU reads the first line of /proc/stat: user nice system idle iowait irq softirq steal, in hundredths of a second.
func parseCPU(line string) (busy, all time.Duration, ok bool) {
	fields := strings.Fields(line)
	if len(fields) < 9 || fields[0] != "cpu" {
		return 0, 0, false
	}
	for i, field := range fields[1:9] {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, 0, false
		}
		d := time.Duration(n) * 10 * time.Millisecond
		all += d
		if i != 3 && i != 4 {
			busy += d
		}
	}
	return busy, all, true
}

// others is the share of the machine that other programs had between two moments.
func others(before, after usage) float64 {
	all := after.all - before.all
	if all <= 0 {
		return 0
	}
	return max(0, float64((after.busy-before.busy)-(after.ours-before.ours))/float64(all))
}

// judgeMachine warns where other programs were at work. The children must have been waited for.
func (r *runner) judgeMachine(before usage, known bool) {
	after, ok := usageNow()
	if !known || !ok {
		return
	}
	share := others(before, after)
	r.report.Environment.Others = &share
	if share > maxOthers {
		r.report.Warnings = append(r.report.Warnings, fmt.Sprintf(
			"other programs took %.0f %% of the machine: absolute figures are not to be published, ratios have wide intervals", 100*share))
	}
}
