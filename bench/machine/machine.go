// Package machine reads how much processor time was used on this machine, and how much the hypervisor gave to others.
// A figure that other programs can spoil is reported together with it: bench/run and test/chaos call this package.
package machine

import (
	"fmt"
	"syscall"
	"time"

	"github.com/prometheus/procfs"
)

// Times is what the processors did since the machine started, all of them together.
type Times struct {
	Busy   time.Duration // not idle, Stolen included
	Stolen time.Duration // wanted here, and given to others by the hypervisor (proc(5), steal)
	All    time.Duration
}

// Now reads the times. ok is false where the system has no such figures, as outside Linux.
func Now() (t Times, ok bool) {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return Times{}, false
	}
	stat, err := fs.Stat()
	return timesOf(stat.CPUTotal), err == nil
}

func timesOf(c procfs.CPUStat) Times {
	seconds := func(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
	busy := c.User + c.Nice + c.System + c.IRQ + c.SoftIRQ + c.Steal
	return Times{Busy: seconds(busy), Stolen: seconds(c.Steal), All: seconds(busy + c.Idle + c.Iowait)}
}

// Since returns what the processors did from an earlier moment to this one.
func (t Times) Since(before Times) Times {
	return Times{Busy: t.Busy - before.Busy, Stolen: t.Stolen - before.Stolen, All: t.All - before.All}
}

// String returns the shares as text.
func (t Times) String() string {
	share := func(d time.Duration) float64 { return 100 * float64(d) / float64(max(t.All, 1)) }
	return fmt.Sprintf("%.0f %% busy, of which the hypervisor gave %.0f %% to others", share(t.Busy), share(t.Stolen))
}

// ProcessorTime returns the processor time that this process has used so far, user and system together. Unlike elapsed
// time, it doesn't grow while other programs run. It panics if getrusage(2) fails, which it never does for a process
// that asks about itself.
func ProcessorTime() time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		panic(fmt.Sprintf("reading this process's processor time: %v", err))
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
