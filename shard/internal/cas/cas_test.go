package cas

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tenure-dev/tenure/shard/internal/ownership"
	"github.com/tenure-dev/tenure/shard/protocol"
)

// Only what an API server says before it commits anything is a rejection. All else may hide a commit (R4).
func TestOnlyAnAnswerThatRulesACommitOutIsARejection(t *testing.T) {
	shards := schema.GroupResource{Group: "tenure.dev", Resource: "shards"}
	for _, c := range []struct {
		name string
		err  error
		want protocol.Outcome
	}{
		{"no error", nil, protocol.Committed},
		{"409 Conflict", apierrors.NewConflict(shards, "s", errors.New("changed")), protocol.Rejected},
		{"409 AlreadyExists", apierrors.NewAlreadyExists(shards, "s"), protocol.Rejected},
		{"404", apierrors.NewNotFound(shards, "s"), protocol.Rejected},
		{"422", apierrors.NewInvalid(schema.GroupKind{}, "s", nil), protocol.Rejected},
		{"400", apierrors.NewBadRequest("what?"), protocol.Rejected},
		{"403", apierrors.NewForbidden(shards, "s", errors.New("no")), protocol.Rejected},
		{"405", apierrors.NewMethodNotSupported(shards, "patch"), protocol.Rejected},
		{"a rejection in another error", fmt.Errorf("writing: %w", apierrors.NewConflict(shards, "s", nil)), protocol.Rejected},
		{"429", apierrors.NewTooManyRequests("later", 1), protocol.Unknown},
		{"500", apierrors.NewInternalError(errors.New("etcd")), protocol.Unknown},
		{"503", apierrors.NewServiceUnavailable("away"), protocol.Unknown},
		{"504", apierrors.NewTimeoutError("etcd is slow", 1), protocol.Unknown},
		{"500 ServerTimeout", apierrors.NewServerTimeout(shards, "patch", 1), protocol.Unknown},
		{"a connection that was cut", io.ErrUnexpectedEOF, protocol.Unknown},
		{"an answer that wasn't waited for", context.DeadlineExceeded, protocol.Unknown},
		{"a request that was cancelled", context.Canceled, protocol.Unknown},
	} {
		if got := Outcome(c.err); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestAVersionIsAPositiveDecimalNumber(t *testing.T) {
	for text, want := range map[string]ownership.Version{"1": 1, "18446744073709551615": 1<<64 - 1} {
		if got, err := Version(text); err != nil || got != want || ResourceVersion(got) != text {
			t.Errorf("%q is read as %d (%v), which is written %q", text, got, err, ResourceVersion(got))
		}
	}
	for _, text := range []string{"", "0", "-1", "12a", "0x10", "18446744073709551616"} {
		if got, err := Version(text); err == nil {
			t.Errorf("%q is read as %d", text, got)
		}
	}
}
