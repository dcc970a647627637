// Package budget limits actions that others can trigger in vain: writing an event, logging an error, repeating a
// request that is refused each time. A user who creates ten thousand objects that can't be served must not cause
// ten thousand events and log lines.
//
// A cause is what one line stands for, such as the reason and the namespace of a refusal. Each cause has its own
// budget, so a flood of one cause doesn't hide the others. All causes together have a budget, too, since a flood
// may consist of ever new causes. What is suppressed is counted, and the next line of the cause reports the count.
package budget

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/utils/lru"
)

// Config of a [Budget]. All fields but Least are required.
type Config struct {
	// Burst is how many times in a row one cause is allowed. After that it is allowed once per Every.
	Burst int
	Every time.Duration
	// PerSecond is the rate for all causes together. Ten times as many are allowed at once after a pause.
	PerSecond int
	// Least, unless it is zero, allows a cause that wasn't allowed for that long, whatever the others use up. It is for
	// causes that nobody can invent at will.
	Least time.Duration
}

// causes is how many causes are remembered: about 200 KiB. The one that wasn't used for longest is forgotten first,
// and starts again with a full budget.
const causes = 1024

// Budget decides whether a cause may be reported, or an action tried, now. It is safe for concurrent use.
type Budget struct {
	config Config

	mu     sync.Mutex // guards all below, the causes in the cache included
	all    *rate.Limiter
	causes *lru.Cache // of *cause by name
}

type cause struct {
	limit *rate.Limiter
	last  time.Time // when the cause was last allowed
	left  int       // times that the cause was refused since it was last allowed
}

// New returns a budget that is full.
func New(config Config) *Budget {
	return &Budget{
		config: config, causes: lru.New(causes),
		all: rate.NewLimiter(rate.Limit(config.PerSecond), 10*config.PerSecond),
	}
}

// OnceAMinute returns a budget for log lines: one a minute for each cause, and on average one a second for all causes
// together.
func OnceAMinute() *Budget { return New(Config{Burst: 1, Every: time.Minute, PerSecond: 1}) }

// Take reports whether a cause is allowed now, and uses up its budget. If it is, left is how many times it was
// refused since it was last allowed.
func (b *Budget) Take(name string, now time.Time) (left int, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.of(name)
	if b.spent(c, now) { // what is refused uses nothing up
		c.left++
		return 0, false
	}
	c.limit.AllowN(now, 1)
	b.all.AllowN(now, 1)
	left, c.left, c.last = c.left, 0, now
	return left, true
}

// Spent reports whether Take would refuse a cause. It uses nothing up.
func (b *Budget) Spent(name string, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.spent(b.of(name), now)
}

func (b *Budget) spent(c *cause, now time.Time) bool {
	if b.all.TokensAt(now) < 1 && (b.config.Least == 0 || now.Sub(c.last) < b.config.Least) {
		return true
	}
	return c.limit.TokensAt(now) < 1
}

// of returns what is known about a cause. The caller holds mu.
func (b *Budget) of(name string) *cause {
	if known, ok := b.causes.Get(name); ok {
		return known.(*cause)
	}
	c := &cause{limit: rate.NewLimiter(rate.Every(b.config.Every), b.config.Burst)}
	b.causes.Add(name, c)
	return c
}
