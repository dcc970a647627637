package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"time"

	"github.com/tenure-dev/tenure/pkg/budget"
	"github.com/tenure-dev/tenure/pkg/text"
)

// newLog returns the handler of this process's log.
func newLog(to io.Writer, level slog.Leveler) slog.Handler {
	return quietened{thrifty{
		Handler: slog.NewJSONHandler(to, &slog.HandlerOptions{Level: level, ReplaceAttr: presentable}),
		budget:  budget.New(errorBudget),
	}}
}

// presentable makes texts from elsewhere fit for a log. It leaves out the options that multicluster-runtime's
// kubeconfig provider logs: they are functions, which have no text. A stack trace is our own, and may be long; that of
// a reconcile is in what its worker panics with.
func presentable(_ []string, a slog.Attr) slog.Attr {
	switch err, failed := a.Value.Any().(error); {
	case a.Key == "options":
		return slog.Attr{}
	case a.Key == "stacktrace", a.Key == "panic":
	case failed:
		a.Value = slog.StringValue(text.Line(err.Error(), text.Note))
	case a.Value.Kind() == slog.KindString:
		a.Value = slog.StringValue(text.Line(a.Value.String(), text.Note))
	}
	return a
}

// errorBudget bounds the errors of one cause that are logged. Failing reconciles are retried for as long as the
// cause lasts. The metrics count each error.
var errorBudget = budget.Config{Burst: 10, Every: time.Minute, PerSecond: 5}

// thrifty logs a few of the errors of each cause.
type thrifty struct {
	slog.Handler
	budget *budget.Budget
}

func (h thrifty) Handle(ctx context.Context, r slog.Record) error {
	if r.Level < slog.LevelError {
		return h.Handler.Handle(ctx, r)
	}
	left, ok := h.budget.Take(causeOf(r), r.Time)
	if !ok {
		return nil
	}
	if left > 0 {
		r.AddAttrs(slog.Int("leftOut", left))
	}
	return h.Handler.Handle(ctx, r)
}

func (h thrifty) WithAttrs(as []slog.Attr) slog.Handler {
	return thrifty{h.Handler.WithAttrs(as), h.budget}
}

func (h thrifty) WithGroup(name string) slog.Handler {
	return thrifty{h.Handler.WithGroup(name), h.budget}
}

// causeOf returns what the errors of one cause have in common.
func causeOf(r slog.Record) string {
	said := r.Message
	r.Attrs(func(a slog.Attr) bool {
		if err, ok := a.Value.Any().(error); ok {
			said += " " + text.Line(err.Error(), text.Note)
		}
		return true
	})
	return text.Cause(said)
}

const (
	// providerLog is the name of the logger of multicluster-runtime's kubeconfig provider.
	providerLog = "kubeconfig-provider"
	// replacing is what it says when a cluster's kubeconfig has changed.
	replacing = "Cluster already exists, updating it"
	// judgeLog is the name of package shard's logger of which clusters can be used.
	judgeLog = "shard/judge"
)

// quietened lowers errors about something that was cancelled to level Info. client-go logs an error when a list is
// cut short that isn't needed any more, for instance when a plan is called off while caches are being filled.
//
// It also lowers what says no more than the lines of package clusterhealth below level Info. That is what package shard
// logs about which clusters can be used, and the kubeconfig provider's five lines for each cluster that starts.
// Without sharding, the provider alone says that a kubeconfig is replaced.
type quietened struct{ slog.Handler }

func (h quietened) Handle(ctx context.Context, r slog.Record) error {
	lowered := r.Level
	r.Attrs(func(a slog.Attr) bool {
		err, failed := a.Value.Any().(error)
		switch {
		case r.Level == slog.LevelError && failed && errors.Is(err, context.Canceled):
			lowered = slog.LevelInfo
		case r.Level != slog.LevelInfo || a.Key != "logger":
		case a.Value.String() == judgeLog, a.Value.String() == providerLog && r.Message != replacing:
			lowered = slog.LevelInfo - 1 // as V(1) has it
		}
		return lowered == r.Level
	})
	r.Level = lowered
	if !h.Enabled(ctx, r.Level) {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

func (h quietened) WithAttrs(as []slog.Attr) slog.Handler { return quietened{h.Handler.WithAttrs(as)} }

func (h quietened) WithGroup(name string) slog.Handler { return quietened{h.Handler.WithGroup(name)} }
