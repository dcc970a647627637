package localplane

import (
	"runtime"
	"sync"
)

// nursery starts every child of this process from one operating-system thread that never ends.
//
// Linux sends a child's parent-death signal when the thread that forked it ends, not when the process does, and the
// Go runtime ends idle threads as it likes: children forked from any goroutine could be killed at any time. So all
// of them are forked by one goroutine that holds its thread for as long as the process lives. It is started at
// the first use and never stops; there is one per process, however many planes it runs.
var nursery struct {
	once sync.Once
	// work carries what the thread is to do next. Unbuffered: the sender waits for its own work only.
	work chan func()
}

// onNursery runs f on the nursery's thread and waits for it.
func onNursery(f func()) {
	nursery.once.Do(func() {
		nursery.work = make(chan func())
		go func() {
			runtime.LockOSThread() // never unlocked: the thread must outlive every child
			for f := range nursery.work {
				f()
			}
		}()
	})
	done := make(chan struct{})
	nursery.work <- func() {
		defer close(done)
		f()
	}
	<-done
}
