package replication

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/test/must"
)

func TestTheRunbookSaysWhatToDoAboutEachReason(t *testing.T) {
	text, err := os.ReadFile("../../config/RUNBOOK.md")
	must.Succeed(t, err)
	_, entry, _ := strings.Cut(string(text), "\n## A Deployment isn't copied\n")
	entry, _, _ = strings.Cut(entry, "\n## ")
	all := []string{
		summarize(nil, 1).Reason, forbidden("kube-system", record{}).Reason, cleaning(nil).Reason,
		invalid(errors.New("no"), record{}).Reason, ReasonRecordRefused,
	}
	for state, reason := range reasons {
		if state != stateAvailable && reason != ReasonProgressing {
			all = append(all, reason)
		}
	}
	for _, reason := range all {
		if !strings.Contains(entry, "\n| `"+reason+"` ") {
			t.Errorf("the runbook doesn't say what to do about %s", reason)
		}
	}
}
