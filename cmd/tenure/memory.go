package main

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/go-logr/logr"
)

// limitMemory sets Go's memory limit to nine tenths of the container's. Near the limit, garbage is collected
// sooner. It follows changes until the context ends, since a container may be resized while it runs. If GOMEMLIMIT
// is set, it stays.
func limitMemory(ctx context.Context, log logr.Logger) {
	if _, err := memlimit.FromCgroup(); errors.Is(err, memlimit.ErrCgroupsNotSupported) {
		return
	}
	// memlimit logs its own errors. A limit that it couldn't set stays as it was.
	_, _ = memlimit.Set(memlimit.WithRefreshInterval(ctx, time.Minute),
		memlimit.WithLogger(slog.New(logr.ToSlogHandler(log.WithName("memory")))))
}
