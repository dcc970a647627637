package labtest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/tenure-dev/tenure/bench/audit"
	"github.com/tenure-dev/tenure/bench/audit/audittest"
	"github.com/tenure-dev/tenure/test/must"
)

func TestAnAuditLogIsReadOnByWholeLines(t *testing.T) {
	line := audittest.Line(audit.Event{Verb: "get"})
	path, log := filepath.Join(t.TempDir(), "audit.log"), auditLog{}
	for _, c := range []struct {
		text string
		want int
	}{{"", 0}, {line[:20], 0}, {line + line[:20], 1}, {line + line, 2}, {line + line, 2}, {line + line + line, 3}} {
		must.Succeed(t, os.WriteFile(path, []byte(c.text), 0o600))
		must.Succeed(t, log.more(path, path+".added"))
		if len(log.events) != c.want {
			t.Errorf("%d events of %d", len(log.events), c.want)
		}
	}
}
