//go:build unix

package main

import (
	"context"
	"os"
	"runtime"
	"syscall"
	"time"
)

// Bounds of what a process uses of one processor's time.
const (
	// quietBelow is how little a process must use, and calmFor for how many intervals in a row, to be left with one.
	quietBelow = 0.2
	calmFor    = 10
	// busyFrom is from what use on it gets all. On a machine that others keep busy it may get no more than this of one.
	busyFrom = 0.4
	// useEvery is the interval.
	useEvery = time.Second / 2
)

// frugality is whether a process that may use several processors is to use one at a time.
type frugality struct {
	one  bool
	calm int // quiet intervals in a row
}

// next notes what part of one processor was used in an interval, and reports whether to use one from now on.
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

// spareProcessors has Go use one processor at a time while the process has little to do, until the context ends. With
// more of them, each event that reaches an idle process wakes several threads: one to handle it and others to look for
// work that there isn't. It does nothing where the environment says how many to use.
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
			runtime.SetDefaultGOMAXPROCS() // as many as Go takes by itself
		}
		last, since = used, now
	}
}

// processorTime is what the process has used so far; 0 if that can't be known.
func processorTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // never fails with these arguments
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
