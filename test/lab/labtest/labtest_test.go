package labtest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/tenure-dev/tenure/test/must"
)

func TestAnAuditLogIsReadOnByWholeLines(t *testing.T) {
	const line = `{"stage":"ResponseComplete","verb":"get","stageTimestamp":"2026-01-01T00:00:00Z",` +
		`"requestReceivedTimestamp":"2026-01-01T00:00:00Z"}` + "\n"
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
