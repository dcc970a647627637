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

// Everybody is let in while there is memory, one at a time while there is little; one whose caches are never filled
// holds the others up for a while only; and once there is memory again, all that wait are let in.
func TestOneAtATimeWhileMemoryIsShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var share atomic.Uint64 // percent
		var said []string
		room := NewRoom(func() Use { return Use{Bytes: share.Load(), Limit: 100} },
			funcr.New(func(_, args string) { said = append(said, args) }, funcr.Options{}))
		enter := func() func() {
			t.Helper()
			leave, err := room.Enter(t.Context())
			if err != nil {
				t.Fatal(err)
			}
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
		time.AfterFunc(time.Second, func() { share.Store(50) })
		began = time.Now()
		for range 100 {
			enter()
		}
		if took := time.Since(began); took < time.Second || took > time.Second+lookEvery {
			t.Errorf("all are let in after %v, want it as soon as there is memory", took)
		}
		if len(said) != 1 || !strings.Contains(said[0], "memory is short") {
			t.Errorf("it said %q", said)
		}
	})
}
