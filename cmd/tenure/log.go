package main

import (
	"context"
	"errors"
	"log/slog"
)

// quietened logs at level Info what was cancelled. client-go calls it an error when a list that nobody wants any more is
// cut short, as when a plan is called off while caches are being filled.
type quietened struct{ slog.Handler }

func (h quietened) Handle(ctx context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		if err, ok := a.Value.Any().(error); ok && r.Level == slog.LevelError && errors.Is(err, context.Canceled) {
			r.Level = slog.LevelInfo
		}
		return r.Level == slog.LevelError
	})
	if !h.Enabled(ctx, r.Level) {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

func (h quietened) WithAttrs(as []slog.Attr) slog.Handler { return quietened{h.Handler.WithAttrs(as)} }

func (h quietened) WithGroup(name string) slog.Handler { return quietened{h.Handler.WithGroup(name)} }
