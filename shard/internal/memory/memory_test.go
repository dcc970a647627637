package memory

import (
	"context"
	"errors"
	"runtime"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"

	"github.com/tenure-dev/tenure/test/must"
)

func TestUseIsWhatNoCollectionGivesBack(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(before)
	runtime.GC()
	if u := Now(); u.Limit != 0 || u.Share() != 0 {
		t.Errorf("without a limit: %+v, %v of it", u, u.Share())
	}
	first := Now().Bytes
	const block = 64 << 20
	kept := make([]byte, block)
	for i := range kept {
		kept[i] = 1
	}
	runtime.GC()
	with := Now().Bytes
	if more := int64(with - first); more < block || more > block*5/4 {
		t.Errorf("%d bytes more with a block of %d", more, block)
	}
	debug.SetMemoryLimit(2 * int64(with))
	if u := Now(); u.Limit != 2*with || u.Share() < 0.4 || u.Share() > 0.6 {
		t.Errorf("half of the limit is needed: %+v, %v of it", u, u.Share())
	}
	runtime.KeepAlive(kept)
	kept = nil
	runtime.GC()
	if last := Now().Bytes; last > with-block*3/4 {
		t.Errorf("%d bytes are needed after a block was given up, %d with it", last, with)
	}
}

// Everybody is let in while there is memory, and one at a time while it is short, in turn. One whose caches are never
// filled holds the others up for a while only. Once there is memory again, those who waited are let in a few at a time.
func TestOneAtATimeWhileMemoryIsShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var share atomic.Uint64 // percent
		var said []string
		room := NewRoom(func() Use { return Use{Bytes: share.Load(), Limit: 100} },
			funcr.New(func(_, args string) { said = append(said, args) }, funcr.Options{}))
		enter := func() func() {
			t.Helper()
			leave, err := room.Enter(t.Context())
			must.Succeed(t, err)
			return leave
		}
		share.Store(79)
		for range 100 {
			enter()
		}
		if len(said) > 0 {
			t.Errorf("it says while there is memory: %q", said)
		}
		share.Store(80)
		began := time.Now()
		first := enter()
		unwanted, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := room.Enter(unwanted); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a second one while memory is short: %v", err)
		}
		time.AfterFunc(time.Second, first)
		enter()
		if took := time.Since(began); took != 2*time.Second {
			t.Errorf("its turn comes after %v, want it when the one before leaves", took)
		}
		enter()
		if took := time.Since(began); took != 2*time.Second+turn {
			t.Errorf("its turn comes after %v, want it when the one before has had its time", took)
		}
		first() // for the second time, which takes nobody else's turn
		var inside atomic.Int32
		for range 3 * afterwards {
			go func() { enter(); inside.Add(1) }()
		}
		synctest.Wait()
		if n := inside.Load(); n != 0 {
			t.Errorf("%d more are let in while memory is short", n)
		}
		share.Store(50)
		time.Sleep(lookEvery)
		synctest.Wait()
		if n := inside.Load(); n != afterwards-1 { // beside the one whose turn it is
			t.Errorf("%d are let in once there is memory, want %d", n, afterwards-1)
		}
		time.Sleep(4 * turn)
		synctest.Wait()
		if n := inside.Load(); n != 3*afterwards {
			t.Errorf("%d have been let in at last, want all %d", n, 3*afterwards)
		}
		began = time.Now()
		for range 100 {
			enter()
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("once nobody waits, others wait %v", took)
		}
		if len(said) != 1 || !strings.Contains(said[0], "memory is short") {
			t.Errorf("it said %q", said)
		}
	})
}
