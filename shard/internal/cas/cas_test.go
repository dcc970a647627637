package cas

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tenure-dev/tenure/shard/internal/ownership"
	"github.com/tenure-dev/tenure/shard/protocol"
)

// Only what an API server says before it commits anything is a rejection. All else may hide a commit (R4).
func TestOnlyAnAnswerThatRulesACommitOutIsARejection(t *testing.T) {
	shards := schema.GroupResource{Group: "tenure.dev", Resource: "shards"}
	for _, c := range []struct {
		name  string
		err   error
		want  protocol.Outcome
		cause ownership.Cause
	}{
		{"409 Conflict", apierrors.NewConflict(shards, "s", errors.New("changed")), protocol.Rejected, ownership.Conflict},
		{"409 AlreadyExists", apierrors.NewAlreadyExists(shards, "s"), protocol.Rejected, ownership.Conflict},
		{"404", apierrors.NewNotFound(shards, "s"), protocol.Rejected, ownership.Conflict},
		{"422", apierrors.NewInvalid(schema.GroupKind{}, "s", nil), protocol.Rejected, ownership.Refused},
		{"400", apierrors.NewBadRequest("what?"), protocol.Rejected, ownership.Refused},
		{"403", apierrors.NewForbidden(shards, "s", errors.New("no")), protocol.Rejected, ownership.Refused},
		{"405", apierrors.NewMethodNotSupported(shards, "patch"), protocol.Rejected, ownership.Refused},
		{"a rejection in another error", fmt.Errorf("writing: %w", apierrors.NewConflict(shards, "s", nil)),
			protocol.Rejected, ownership.Conflict},
		{"429", apierrors.NewTooManyRequests("later", 1), protocol.Unknown, ownership.Overloaded},
		{"404 of a proxy", plain(404), protocol.Unknown, ownership.Lost},
		{"403 of a proxy", plain(403), protocol.Unknown, ownership.Lost},
		{"429 without a Status", plain(429), protocol.Unknown, ownership.Overloaded},
		{"502 of a proxy", plain(502), protocol.Unknown, ownership.Failed},
		{"a proxy's answer in another error", fmt.Errorf("writing: %w", plain(404)), protocol.Unknown, ownership.Lost},
		{"500", apierrors.NewInternalError(errors.New("etcd")), protocol.Unknown, ownership.Failed},
		{"503", apierrors.NewServiceUnavailable("away"), protocol.Unknown, ownership.Failed},
		{"504", apierrors.NewTimeoutError("etcd is slow", 1), protocol.Unknown, ownership.Failed},
		{"500 ServerTimeout", apierrors.NewServerTimeout(shards, "patch", 1), protocol.Unknown, ownership.Failed},
		{"a connection that was cut", io.ErrUnexpectedEOF, protocol.Unknown, ownership.Lost},
		{"an answer that wasn't waited for", context.DeadlineExceeded, protocol.Unknown, ownership.Lost},
		{"a request that was cancelled", context.Canceled, protocol.Unknown, ownership.Lost},
	} {
		if got := Outcome(c.err); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
		if got := Cause(c.err); got != c.cause {
			t.Errorf("%s: the cause is %v, want %v", c.name, got, c.cause)
		}
	}
	if got := Outcome(nil); got != protocol.Committed {
		t.Errorf("no error: %v", got)
	}
}

// plain is the error of an answer that isn't a Status: of a proxy, most of the time.
func plain(code int) error {
	return apierrors.NewGenericServerResponse(code, "patch", schema.GroupResource{Resource: "shards"}, "s",
		"default backend", 0, true)
}

func TestOnlyTheAPIServerCanSayThatAnObjectIsGone(t *testing.T) {
	gone := apierrors.NewNotFound(schema.GroupResource{Resource: "shards"}, "s")
	for err, want := range map[error]bool{
		gone: true, fmt.Errorf("reading: %w", gone): true,
		plain(404): false, fmt.Errorf("reading: %w", plain(404)): false,
		apierrors.NewServiceUnavailable("away"): false, io.ErrUnexpectedEOF: false,
	} {
		if got := NotFound(err); got != want {
			t.Errorf("%v says that it is gone: %v", err, got)
		}
	}
	if NotFound(nil) {
		t.Error("no error says that it is gone")
	}
}

func TestAVersionIsAPositiveDecimalNumber(t *testing.T) {
	for text, want := range map[string]ownership.Version{"1": 1, "18446744073709551615": 1<<64 - 1} {
		if got, err := Version(text); err != nil || got != want {
			t.Errorf("%q is read as %d (%v)", text, got, err)
		}
	}
	for _, text := range []string{"", "0", "-1", "12a", "0x10", "18446744073709551616"} {
		if got, err := Version(text); err == nil {
			t.Errorf("%q is read as %d", text, got)
		}
	}
}

func TestAPatchNamesTheVersionThatItReplaces(t *testing.T) {
	for want, fields := range map[string]map[string]any{
		`{"metadata":{"resourceVersion":"7"},"spec":{"assignee":"a"}}`: {"spec": map[string]any{"assignee": "a"}},
		`{"metadata":{"annotations":{"a":null},"resourceVersion":"7"}}`: {
			"metadata": map[string]any{"annotations": map[string]any{"a": nil}}},
	} {
		patch := Merge(7, fields)
		if got, err := patch.Data(nil); err != nil || string(got) != want || patch.Type() != types.MergePatchType {
			t.Errorf("%s %s (%v), want a merge patch %s", patch.Type(), got, err, want)
		}
	}
}
