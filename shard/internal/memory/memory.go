package memory

import (
	"context"
	"math"
	"runtime/metrics"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"github.com/tenure-dev/tenure/shard/internal/turnstile"
)

const (
	// shortFrom is the part of the limit from which on memory is short. The rest holds garbage between two
	// collections: with a fifth of the limit for it, collecting takes about five times as much processor time as with
	// an equal part.
	shortFrom = 0.8
	// afterwards is how many of the shards that had to wait are let in at a time once memory isn't short any more.
	// The next collection has to find what they took before others go in.
	afterwards = 4
	// turn is how long one shard keeps others waiting: its caches may never be filled.
	turn = 5 * time.Second
	// lookEvery is how often memory is checked while shards wait.
	lookEvery = 500 * time.Millisecond
	// tellEvery bounds how often the log says that memory is short.
	tellEvery = time.Minute
)

// Use is what the process needs of its memory.
type Use struct {
	// Bytes that no collection frees: live objects, as the last one found them, and memory outside the heap.
	Bytes uint64
	// Limit is GOMEMLIMIT, in bytes; 0 if there is none.
	Limit uint64
}

// Now returns the present use. It is safe for concurrent use, and takes some microseconds.
func Now() Use {
	samples := []metrics.Sample{
		{Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/memory/classes/heap/unused:bytes"}, {Name: "/memory/classes/heap/free:bytes"},
		{Name: "/memory/classes/heap/released:bytes"}, {Name: "/gc/gomemlimit:bytes"},
	}
	metrics.Read(samples)
	of := func(i int) uint64 { return samples[i].Value.Uint64() }
	u := Use{Bytes: of(0) + of(1) - of(2) - of(3) - of(4) - of(5), Limit: of(6)}
	if u.Limit == math.MaxInt64 {
		u.Limit = 0
	}
	return u
}

// Share returns the part of the limit that is needed; 0 if there is no limit.
func (u Use) Share() float64 {
	if u.Limit == 0 {
		return 0
	}
	return float64(u.Bytes) / float64(u.Limit)
}

// Room bounds how many shards fill their caches at a time: any number while there is memory, one while it is short.
// It is safe for concurrent use.
type Room struct {
	log  logr.Logger
	use  func() Use
	door turnstile.Turnstile

	mu      sync.Mutex // guards all below
	looking bool       // shards take turns, so memory is checked again and again
	told    time.Time
}

// NewRoom returns the room of a process. use returns what the process needs of its memory.
func NewRoom(use func() Use, log logr.Logger) *Room {
	return &Room{log: log, use: use}
}

// Enter returns at once if there is memory and no shard waits; otherwise it waits for a turn. The turn ends when
// leave is called, or by itself after some seconds. It fails only with the context's error.
func (r *Room) Enter(ctx context.Context) (leave func(), err error) {
	most := r.most()
	if _, waiting := r.door.Count(); most > 1 && waiting == 0 {
		return func() {}, nil
	}
	r.mu.Lock()
	if !r.looking {
		r.looking = true
		time.AfterFunc(lookEvery, r.look)
	}
	r.mu.Unlock()
	return r.door.Turn(ctx, most, turn, nil)
}

// most returns how many shards that have to wait may be let in at a time.
func (r *Room) most() int {
	u := r.use()
	if u.Share() < shortFrom {
		return afterwards
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := time.Now(); now.Sub(r.told) >= tellEvery {
		r.told = now
		r.log.Info("memory is short: caches are filled one shard at a time", "neededMiB", u.Bytes>>20,
			"limitMiB", u.Limit>>20)
	}
	return 1
}

// look lets more shards in when memory isn't short any more. It repeats itself for as long as shards take turns.
func (r *Room) look() {
	r.door.Resize(r.most())
	r.mu.Lock()
	defer r.mu.Unlock()
	if inside, waiting := r.door.Count(); inside+waiting == 0 {
		r.looking = false
		return
	}
	time.AfterFunc(lookEvery, r.look)
}
