package audit

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

const line = `{"kind":"Event","level":"RequestResponse","stage":"ResponseComplete","requestURI":"/x?dryRun=","verb":"patch",` +
	`"user":{"username":"u","groups":["system:masters"]},"userAgent":"a\"\\\u00e9","objectRef":{"resource":"ats",` +
	`"apiGroup":"cnat.programming-kubernetes.info","name":"x","n":[{},[]]},"responseStatus":{"metadata":{},"code":200},` +
	`"requestObject":{"metadata":{"resourceVersion":"7"},"spec":null},` +
	`"requestReceivedTimestamp":"2026-01-01T00:00:00.000001Z","stageTimestamp":"2026-01-01T00:00:00Z"}`

// FuzzDecode holds the scanner against the standard decoder: what that one reads, the scanner reads alike.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(line))
	f.Add([]byte(strings.Replace(line, "dryRun=", "", 1)))
	f.Add([]byte(strings.Replace(line, `{"username":"u","groups":["system:masters"]}`, "null", 1)))
	f.Fuzz(func(t *testing.T, line []byte) {
		var d decoder
		got, err := d.decode(line)
		var want struct {
			Stage, Verb, UserAgent string
			ObjectRef              struct{ Resource, Name string }
		}
		lower := strings.ToLower(string(line))
		once := func(field string) bool {
			return strings.Count(lower, field) == 1 && strings.Contains(string(line), field)
		}
		if json.Unmarshal(line, &want) != nil || err != nil || !once(`"verb"`) || !once(`"stage"`) || got.Body != nil ||
			strings.Count(lower, `"useragent"`) > 1 || strings.Count(lower, `"objectref"`) > 1 || strings.Count(lower, `"name"`) > 1 ||
			strings.Contains(lower, `"useragent"`) && !once(`"userAgent"`) || strings.Contains(lower, `"objectref"`) && !once(`"objectRef"`) {
			return // repeated names and other spellings are outside what API servers write
		}
		if got.Verb != want.Verb || got.UserAgent != want.UserAgent || strings.Contains(lower, `"name"`) && once(`"name"`) && got.Name != want.ObjectRef.Name {
			t.Errorf("%s\nread as %q %q %q, want %q %q %q", line, got.Verb, got.UserAgent, got.Name, want.Verb, want.UserAgent, want.ObjectRef.Name)
		}
	})
}

func TestAPatchTellsWhatItReplaces(t *testing.T) {
	var d decoder
	e, err := d.decode([]byte(strings.Replace(line, "dryRun=", "", 1)))
	if err != nil || e.Base != 7 || e.User != "u" || !e.Wrote() || e.What() != "patch ats" {
		t.Errorf("got %+v, %v", e, err)
	}
}

func TestALogThatIsWrittenToIsReadToTheEndOfItsLine(t *testing.T) {
	for _, late := range []time.Duration{tailPatience / 2, 2 * tailPatience} {
		synctest.Test(t, func(t *testing.T) {
			in := &growing{text: []string{line + "\n" + line[:100], line[100:] + "\n"}, more: time.Now().Add(late)}
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

// growing is a file that ends after its first text until more is written.
type growing struct {
	text []string
	more time.Time
}

func (g *growing) Read(p []byte) (int, error) {
	if len(g.text) == 0 || len(g.text) == 1 && time.Now().Before(g.more) {
		return 0, io.EOF
	}
	n := copy(p, g.text[0])
	g.text = g.text[1:]
	return n, nil
}

func TestLogsAreReadFromTheOldestToTheNewest(t *testing.T) {
	dir := t.TempDir()
	want := []string{"audit-2026-01-01T00-00-00.000.log.gz", "audit-2026-01-02T00-00-00.000.log", "audit.log", "b/audit.log.2", "b/audit.log.1", "b/audit.log"}
	if err := os.Mkdir(filepath.Join(dir, "b"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range want {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	logs, err := Logs(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, l := range logs {
		got = append(got, strings.TrimPrefix(l.Path, dir+"/"))
	}
	if fmt.Sprint(got) != fmt.Sprint(want) || len(Missing(logs)) > 0 {
		t.Errorf("got %v, missing %v; want %v", got, Missing(logs), want)
	}
}

func BenchmarkRead(b *testing.B) {
	text := strings.Repeat(line+"\n", 1000)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		new(Reader).lines(Log{}, strings.NewReader(text), func(_ Event, err error) bool { return err == nil })
	}
}
