// Package budget bounds how often others can make this process do something in vain: write an event, log an error, ask
// for what is refused each time. Whoever can create ten thousand objects that can't be served must not get ten thousand
// events and log lines for it.
//
// A cause is what one line stands for, such as the reason and the namespace of a refusal. Each has a budget of its own,
// so that a flood hides nothing but itself, and all causes together have one as well, since a flood may invent causes.
// What is left out is counted, and the next line of the cause says so.
package budget

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/utils/lru"
)

// Config of a [Budget]. All fields are required.
type Config struct {
	// Burst is how often in a row one cause may be told of, and Every how long it then takes until it may be again.
	Burst int
	Every time.Duration
	// PerSecond bounds all causes together; for ten seconds they may take ten times as much at once.
	PerSecond int
}

// causes is how many causes are remembered, those of the latest use: about 200 KiB. One that was forgotten starts anew.
const causes = 1024

// Budget says what may be told, or tried. It is safe for concurrent use.
type Budget struct {
	config Config

	mu     sync.Mutex // guards all below, the causes in the cache included
	all    *rate.Limiter
	causes *lru.Cache // of *cause by name
}

type cause struct {
	limit *rate.Limiter
	left  int // what was left out since the cause was last told of
}

// New returns a budget that is full.
func New(config Config) *Budget {
	return &Budget{
		config: config, causes: lru.New(causes),
		all: rate.NewLimiter(rate.Limit(config.PerSecond), 10*config.PerSecond),
	}
}

// Take reports whether a cause may be told of now, and if so how many times it wasn't since the last time it was.
func (b *Budget) Take(name string, now time.Time) (left int, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.of(name)
	if !c.limit.AllowN(now, 1) || !b.all.AllowN(now, 1) {
		c.left++
		return 0, false
	}
	left, c.left = c.left, 0
	return left, true
}

// Spent reports whether Take would refuse a cause. It uses nothing up.
func (b *Budget) Spent(name string, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.of(name).limit.TokensAt(now) < 1 || b.all.TokensAt(now) < 1
}

// of returns what is known of a cause. The caller holds mu.
func (b *Budget) of(name string) *cause {
	if known, ok := b.causes.Get(name); ok {
		return known.(*cause)
	}
	c := &cause{limit: rate.NewLimiter(rate.Every(b.config.Every), b.config.Burst)}
	b.causes.Add(name, c)
	return c
}
