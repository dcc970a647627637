package lab

import (
	"context"
	"fmt"
	"time"
)

// pollEvery is short: what is waited for is mostly there at once, and tests pay for every wait. The longer it takes,
// the longer are the pauses between looks, up to pollAtLeast.
const pollEvery, pollAtLeast = 50 * time.Millisecond, 2 * time.Second

// Eventually repeats what fails until it doesn't. When time is up or the context ends, the error says so and what was
// seen last. At most a third of the time is spent on looks, which take part of the machine. The last pause makes a wait
// a twentieth longer at most, or twice as long as a look takes.
func Eventually(ctx context.Context, within time.Duration, try func() error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, within, fmt.Errorf("not within %v", within))
	defer cancel()
	for began := time.Now(); ; {
		looked := time.Now()
		err := try()
		if err == nil {
			return nil
		}
		pause := max(pollEvery, 2*time.Since(looked), time.Since(began)/20)
		if over := Sleep(ctx, min(pause, pollAtLeast)); over != nil {
			return fmt.Errorf("%w: %w", over, err)
		}
	}
}

// Sleep waits, or returns why the context ended first.
func Sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return context.Cause(ctx)
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
