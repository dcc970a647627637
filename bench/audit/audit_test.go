package audit

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-dev/tenure/test/must"
)

const text = `{"kind":"Event","level":"RequestResponse","stage":"ResponseComplete","requestURI":"/x?dryRun=","verb":"patch",` +
	`"user":{"username":"u","groups":["system:masters"]},"userAgent":"a\"\\\u00e9","objectRef":{"resource":"ats",` +
	`"apiGroup":"cnat.programming-kubernetes.info","name":"x","n":[{},[]]},"responseStatus":{"metadata":{},"code":200},` +
	`"requestObject":{"metadata":{"resourceVersion":"7"},"spec":null},` +
	`"requestReceivedTimestamp":"2026-01-01T00:00:00.000001Z","stageTimestamp":"2026-01-01T00:00:00Z"}`

// FuzzDecode: whatever a line holds, it is refused or read as an event that has a time, and a body only where one
// counts.
func FuzzDecode(f *testing.F) {
	for _, old := range []string{"", "dryRun=", `{"username":"u","groups":["system:masters"]}`, `"code":200`,
		`"requestObject"`} {
		f.Add([]byte(strings.Replace(text, old, "null", 1)))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		e, err := decode(line)
		if err == nil && (e.Verb == "" || e.Received == 0 ||
			e.Body != nil && (!e.Ended() || !e.Mutating() || e.Outcome() == Rejected)) {
			t.Errorf("%s\nread as %+v", line, e)
		}
	})
}

func TestAPatchTellsWhatItReplaces(t *testing.T) {
	e, err := decode([]byte(strings.Replace(text, "dryRun=", "", 1)))
	if err != nil || e.Base != 7 || e.User != "u" || !e.Wrote() || e.What() != "patch ats" {
		t.Errorf("got %+v, %v", e, err)
	}
}

func TestADryRunIsOneByItsParameter(t *testing.T) {
	for query, want := range map[string]bool{
		"": false, "dryRun=All": true, "fieldManager=a&dryRun=All": true, "labelSelector=dryRun=x": false,
	} {
		e, err := decode([]byte(strings.Replace(text, "dryRun=", query, 1)))
		if err != nil || e.DryRun != want {
			t.Errorf("%q: %v, %v, want %v", query, e.DryRun, err, want)
		}
	}
}

func TestTheStatusOfADeploymentTellsWhoseItIs(t *testing.T) {
	e, err := decode([]byte(strings.NewReplacer("dryRun=", "", "cnat.programming-kubernetes.info", AppsGroup,
		`"resource":"ats"`, `"resource":"deployments","subresource":"status"`, `"requestObject"`,
		`"responseObject":{"kind":"Deployment","metadata":{"uid":"u1"},"status":{"replicas":1}},"requestObject"`,
	).Replace(text)))
	if err != nil || e.What() != "patch deployments/status" || e.Body == nil || e.Body.UID != "u1" {
		t.Errorf("got %+v with body %+v, %v", e, e.Body, err)
	}
}

func TestAMissedAtHadADeadline(t *testing.T) {
	for spec, want := range map[string]Body{
		`{}`: {}, `{"startingDeadlineSeconds":7}`: {Missed: true, Deadline: 7},
		`{"startingDeadlineSeconds":0}`: {Missed: true},
	} {
		e, err := decode([]byte(strings.NewReplacer("dryRun=", "", `"requestObject"`,
			`"responseObject":{"kind":"At","spec":`+spec+`,"status":{"result":"Missed"}},"requestObject"`).Replace(text)))
		if err != nil || e.Body == nil || *e.Body != want {
			t.Errorf("%s: got %+v, %v", spec, e.Body, err)
		}
	}
}

func TestALogThatIsWrittenToIsReadToTheEndOfItsLine(t *testing.T) {
	for _, late := range []time.Duration{tailPatience / 2, 2 * tailPatience} {
		synctest.Test(t, func(t *testing.T) {
			in := &growing{parts: []string{text + "\n" + text[:100], text[100:] + "\n"}, more: time.Now().Add(late)}
			n, last := 0, error(nil)
			new(Reader).lines(Log{Path: "audit.log"}, &tail{in: in}, func(_ Event, err error) bool {
				n, last = n+1, err
				return true
			})
			if n != 2 || (last == nil) != (late < tailPatience) {
				t.Errorf("after %v: %d lines, %v", late, n, last)
			}
		})
	}
}

func TestALogWithoutEventsIsNotOneInWhichNothingHappened(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "audit.log")
	refused := strings.NewReplacer(`"code":200`, `"code":409`, "dryRun=", "", `"userAgent":"`, `"userAgent":"`+agentPrefix)
	for name, c := range map[string]struct {
		log           string
		kept, refused int
		fails         bool
	}{
		"empty":                   {"", 0, 0, true},
		"one, not ours":           {text + "\n", 1, 0, false},
		"one of ours was refused": {text + "\n" + refused.Replace(text) + "\n", 2, 1, false},
	} {
		must.Succeed(t, os.WriteFile(path, []byte(c.log), 0o600))
		kept, err := All(path, func(*Event) bool { return true })
		writes, refusedErr := Refused(dir)
		if len(kept) != c.kept || len(writes) != c.refused || (err != nil) != c.fails || (refusedErr != nil) != c.fails {
			t.Errorf("%s: %d kept, %v; %d refused, %v", name, len(kept), err, len(writes), refusedErr)
		}
	}
	if _, err := Refused(t.TempDir()); !errors.Is(err, ErrNoLogs) {
		t.Errorf("without logs: %v", err)
	}
}

// growing is a file that ends after its first text until more is written.
type growing struct {
	parts []string
	more  time.Time
}

func (g *growing) Read(p []byte) (int, error) {
	if len(g.parts) == 0 || len(g.parts) == 1 && time.Now().Before(g.more) {
		return 0, io.EOF
	}
	n := copy(p, g.parts[0])
	g.parts = g.parts[1:]
	return n, nil
}

func TestLogsAreReadFromTheOldestToTheNewest(t *testing.T) {
	dir := t.TempDir()
	want := []string{"audit-2026-01-01T00-00-00.000.log.gz", "audit-2026-01-02T00-00-00.000.log", "audit.log",
		"b/audit.log.2", "b/audit.log.1", "b/audit.log"}
	must.Succeed(t, os.Mkdir(filepath.Join(dir, "b"), 0o700))
	for _, name := range want {
		must.Succeed(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
	}
	logs, err := Logs(dir)
	must.Succeed(t, err)
	var got []string
	for _, l := range logs {
		got = append(got, strings.TrimPrefix(l.Path, dir+"/"))
	}
	if fmt.Sprint(got) != fmt.Sprint(want) || len(Missing(logs)) > 0 {
		t.Errorf("got %v, missing %v; want %v", got, Missing(logs), want)
	}
}

func BenchmarkRead(b *testing.B) {
	log := strings.Repeat(text+"\n", 1000)
	b.SetBytes(int64(len(log)))
	for b.Loop() {
		new(Reader).lines(Log{}, strings.NewReader(log), func(_ Event, err error) bool { return err == nil })
	}
}
