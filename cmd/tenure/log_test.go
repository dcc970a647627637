package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/go-logr/logr"
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
