package lab

import (
	"context"
	"fmt"
	"time"
)

// pollEvery is short: what is waited for is mostly there at once, and tests pay for every wait.
const pollEvery = 50 * time.Millisecond

// Eventually repeats what fails until it doesn't. When time is up or the context ends, the error says so and what was
// seen last.
func Eventually(ctx context.Context, within time.Duration, try func() error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, within, fmt.Errorf("not within %v", within))
	defer cancel()
	for {
		err := try()
		if err == nil {
			return nil
		}
		if over := Sleep(ctx, pollEvery); over != nil {
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
