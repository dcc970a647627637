package main

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/go-logr/logr"
)

// limitMemory sets Go's memory limit to nine tenths of the container's, near which garbage is collected sooner, and
// follows that until the context ends: a container may be resized while it runs. GOMEMLIMIT, where it is set, stays.
func limitMemory(ctx context.Context, log logr.Logger) {
	if _, err := memlimit.FromCgroup(); errors.Is(err, memlimit.ErrCgroupsNotSupported) {
		return
	}
	// It logs its own errors, and what it couldn't set stays as it was.
	_, _ = memlimit.Set(memlimit.WithRefreshInterval(ctx, time.Minute),
		memlimit.WithLogger(slog.New(logr.ToSlogHandler(log.WithName("memory")))))
}
