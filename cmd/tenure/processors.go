//go:build unix

package main

import (
	"context"
	"os"
	"runtime"
	"syscall"
	"time"
)

// Bounds of a process's CPU time, as a part of one processor's time.
const (
	// A process that uses less than quietBelow in each of calmFor intervals in a row gets one processor.
	quietBelow = 0.2
	calmFor    = 10
	// A process that uses busyFrom or more gets all processors. On a busy machine it may get no more CPU time than
	// this.
	busyFrom = 0.4
	// useEvery is the interval.
	useEvery = time.Second / 2
)

// frugality decides whether a process should use one processor at a time.
type frugality struct {
	one  bool
	calm int // quiet intervals in a row
}

// next takes the part of one processor that was used in an interval. It reports whether to use one from now on.
func (f *frugality) next(used float64) (one bool) {
	if f.calm++; used >= quietBelow {
		f.calm = 0
	}
	switch {
	case used >= busyFrom:
		f.one = false
	case f.calm >= calmFor:
		f.one = true
	}
	return f.one
}

// spareProcessors makes Go use one processor at a time while the process has little to do, until the context ends.
// With more of them, each event that reaches an idle process wakes several threads: one to handle it, and others
// that look for work in vain. It does nothing if GOMAXPROCS is set.
func spareProcessors(ctx context.Context) {
	if os.Getenv("GOMAXPROCS") != "" || runtime.GOMAXPROCS(0) == 1 {
		return
	}
	defer runtime.SetDefaultGOMAXPROCS()
	ticker := time.NewTicker(useEvery)
	defer ticker.Stop()
	var f frugality
	for last, since := processorTime(), time.Now(); ; {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		used, now, before := processorTime(), time.Now(), f.one
		switch one := f.next(float64(used-last) / float64(now.Sub(since))); {
		case one && !before:
			runtime.GOMAXPROCS(1)
		case before && !one:
			runtime.SetDefaultGOMAXPROCS() // Go's own default
		}
		last, since = used, now
	}
}

// processorTime returns the CPU time that the process has used so far; 0 if it isn't known.
func processorTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // never fails with these arguments
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
