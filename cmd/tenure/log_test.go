package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"

	"github.com/tenure-dev/tenure/pkg/text"
	"github.com/tenure-dev/tenure/test/must"
)

func TestWhatWasCancelledIsNoErrorInTheLog(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{fmt.Errorf("listing Pods: %w", context.Canceled), "level=INFO"},
		{context.DeadlineExceeded, "level=ERROR"},
		{errors.New("context canceled by the server"), "level=ERROR"},
		{nil, "level=ERROR"},
	} {
		var out bytes.Buffer
		log := logr.FromSlogHandler(quietened{slog.NewTextHandler(&out, nil)}).WithValues("replica", "r1").WithName("cache")
		log.Error(c.err, "reading the answer")
		if !strings.Contains(out.String(), c.want) || !strings.Contains(out.String(), "replica=r1") {
			t.Errorf("%v: got %q, want %s", c.err, out.String(), c.want)
		}
	}
}

func TestWhatSaysNoMoreThanPackageClusterhealthIsNotLogged(t *testing.T) {
	const provider = "kubeconfig-provider" // of multicluster-runtime
	for _, c := range []struct {
		logger, message string
		want            bool
	}{
		{provider, "Successfully engaged manager", false},
		{provider, "Cluster already exists, updating it", true},
		{"clusterhealth", "Successfully engaged manager", true},
		{"shard", "shard active", true},
		{"shard/judge", "cluster can be used from here again", false},
	} {
		for _, level := range []slog.Level{slog.LevelInfo, slog.LevelDebug} {
			var out bytes.Buffer
			log := logr.FromSlogHandler(newLog(&out, level)).WithValues("replica", "r1").WithName(c.logger)
			log.Error(errors.New("refused"), "Failed to start cluster")
			log.WithValues("cluster", "west").Info(c.message)
			if got := strings.Contains(out.String(), c.message); got != (c.want || level == slog.LevelDebug) ||
				!strings.Contains(out.String(), "Failed to start") {
				t.Errorf("%s: %q: logged at level %v: %v\n%s", c.logger, c.message, level, got, &out)
			}
		}
	}
}

// logged are the lines that a replica's log gets of what write says.
func logged(write func(logr.Logger)) []string {
	var out bytes.Buffer
	write(logr.FromSlogHandler(newLog(&out, slog.LevelInfo)).WithValues("replica", "r1").WithName("controller"))
	return strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
}

func TestTextsOfOthersAreFitForTheLog(t *testing.T) {
	nasty := "no\x1b[2J\u009b31m\nfake line\u202egnp.exe\u200b\x00\xff" + strings.Repeat("long ", 10_000)
	for name, write := range map[string]func(logr.Logger){
		"an error": func(log logr.Logger) { log.Error(errors.New(nasty), "Reconciler error") },
		"an error with causes": func(log logr.Logger) {
			log.Error(fmt.Errorf("a: %w", errors.New(nasty)), "Reconciler error")
		},
		"a value":                func(log logr.Logger) { log.Info("cluster can't be used", "note", nasty) },
		"a value from before":    func(log logr.Logger) { log.WithValues("name", nasty).Info("here") },
		"a message":              func(log logr.Logger) { log.Info(nasty) },
		"an error's own message": func(log logr.Logger) { log.Error(nil, nasty) },
	} {
		t.Run(name, func(t *testing.T) {
			lines := logged(write)
			if len(lines) != 1 || len(lines[0]) > text.Note+300 || text.Line(lines[0], len(lines[0])) != lines[0] {
				t.Errorf("%d lines, the first of %d bytes: %.200q", len(lines), len(lines[0]), lines[0])
			}
			if !strings.Contains(lines[0], "[2J") || strings.Contains(lines[0], `\u00`) {
				t.Errorf("%.200s", lines[0])
			}
		})
	}
}

func TestAStackIsLoggedWhole(t *testing.T) {
	stack := strings.Repeat("goroutine 1 [running]:\n", 500)
	line := logged(func(log logr.Logger) {
		log.Error(nil, "Observed a panic", "panic", stack, "stacktrace", stack) // a reconcile's own stack is in the former
	})[0]
	if got := strings.Count(line, "goroutine"); got != 1000 {
		t.Errorf("%d lines of 1000 are left", got)
	}
}

func TestAFloodOfErrorsHidesNothingButItself(t *testing.T) {
	lines := logged(func(log logr.Logger) {
		for i := range 5000 {
			err := fmt.Errorf(`making Pod of At team-%d/at-%d: pods "at-%d" is forbidden: exceeded quota: pods, used: pods=%d`,
				i, i, i, i)
			log.Error(err, "Reconciler error")
		}
		log.Error(errors.New(`making Pod of At a/b: pods "b" is forbidden: User "x" cannot create resource "pods"`),
			"Reconciler error")
		log.Error(errors.New("no route to host"), "Reconciler error")
		log.Info("shard active")
	})
	if len(lines) != errorBudget.Burst+3 {
		t.Errorf("%d lines, want %d of the flood and 3 others", len(lines), errorBudget.Burst)
	}
	for i, want := range []string{"cannot create", "no route", "shard active"} {
		if got := lines[len(lines)-3+i]; !strings.Contains(got, want) {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestALineSaysHowManyLikeItWereLeftOut(t *testing.T) {
	var out bytes.Buffer
	h := newLog(&out, slog.LevelInfo)
	start := time.Now()
	for i := range 500 {
		r := slog.NewRecord(start.Add(time.Duration(i)*time.Second), slog.LevelError, "Reconciler error", 0)
		must.Succeed(t, h.WithGroup("g").Handle(t.Context(), r))
	}
	if n := strings.Count(out.String(), "\n"); n < 17 || n > 19 {
		t.Errorf("%d lines in 500 s, want 10 and one a minute", n)
	}
	if n := strings.Count(out.String(), `"leftOut":59`); n < 6 {
		t.Errorf("%d lines say that 59 were left out", n)
	}
}
