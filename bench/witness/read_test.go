package witness

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// auditLine writes an event as an API server does.
func auditLine(e Event) []byte {
	ref := map[string]any{"resource": e.Resource, "namespace": e.Namespace, "name": e.Name, "apiVersion": "v1"}
	for k, v := range map[string]string{"apiGroup": e.Group, "subresource": e.Subresource, "uid": e.UID} {
		if v != "" {
			ref[k] = v
		}
	}
	line := map[string]any{
		"kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": "Metadata", "auditID": "6a7b", "stage": "ResponseComplete",
		"requestURI": "/apis/x?fieldManager=tenure", "verb": e.Verb, "user": map[string]any{"username": e.User, "groups": []string{"system:masters"}},
		"sourceIPs": []string{"127.0.0.1"}, "userAgent": e.UserAgent, "objectRef": ref,
		"responseStatus":           map[string]any{"metadata": map[string]any{}, "code": e.Code, "message": e.Message},
		"requestReceivedTimestamp": stamp(e.Received), "stageTimestamp": stamp(e.Completed),
		"annotations": map[string]any{"authorization.k8s.io/decision": "allow", "authorization.k8s.io/reason": "by \"role\" {x}"},
	}
	if b := e.Body; b != nil {
		line["responseObject"] = auditBody(b)
	}
	text, err := json.Marshal(line)
	if err != nil {
		panic(err)
	}
	return append(text, '\n')
}

func auditBody(b *Body) map[string]any {
	status := map[string]any{"phase": b.Phase}
	spec := map[string]any{"schedule": b.Schedule}
	if s := b.Shard; s != nil {
		spec = map[string]any{"cluster": s.Cluster, "prefix": s.Prefix, "assignee": s.Assignee}
		status = map[string]any{"holder": s.Holder, "warm": s.Warm, "phase": s.Phase, "epoch": s.Epoch, "lastMove": map[string]any{"kind": s.Move}}
	}
	return map[string]any{
		"metadata": map[string]any{"uid": b.UID, "resourceVersion": fmt.Sprint(b.ResourceVersion)}, "spec": spec, "status": status,
	}
}

// logs writes files below a new folder.
func logs(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func zipped(t *testing.T, text string) string {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestReadSeesWhatJudgeSees(t *testing.T) {
	for i := range len(mutations) + 1 {
		m := newModel(7)
		m.run(300)
		if i < len(mutations) {
			mutations[i].do(m)
		}
		files := make(map[string]string)
		for n, e := range m.events {
			name := e.Cluster + "/audit.log"
			if n < len(m.events)/3 {
				name = e.Cluster + "/audit-2026-11-20T10-00-00.000.log"
			}
			files[name] += string(auditLine(e))
		}
		for name, text := range files {
			if strings.Contains(name, "audit-") {
				delete(files, name)
				files[name+".gz"] = zipped(t, text)
			}
		}
		r, err := Read(logs(t, files), Options{})
		if err != nil {
			t.Fatal(err)
		}
		want := judged(m)
		if diff := cmp.Diff(want.Counts, r.Counts); diff != "" {
			t.Errorf("mutation %d: counts (-judged +read):\n%s", i, diff)
		}
		if diff := cmp.Diff(want.Ats, r.Ats); diff != "" {
			t.Errorf("mutation %d: Ats (-judged +read):\n%s", i, diff)
		}
		if diff := cmp.Diff(want.Moves, r.Moves); diff != "" {
			t.Errorf("mutation %d: moves (-judged +read):\n%s", i, diff)
		}
		if r.Input.Lines != len(m.events) {
			t.Errorf("mutation %d: read %d lines of %d", i, r.Input.Lines, len(m.events))
		}
	}
}

func TestReadNamesBadInput(t *testing.T) {
	good := string(auditLine(patchWeb.by("west/", 1, "a", 1, 2)))
	tests := []struct {
		name  string
		files map[string]string
		want  string // part of the error, empty for none
		torn  int
	}{
		{"a torn last line is tolerated and counted", map[string]string{"west/audit.log": good + good[:len(good)/2]}, "", 1},
		{"a last line that only lacks its end of line is read", map[string]string{"west/audit.log": good + strings.TrimSpace(good)}, "", 0},
		{"a torn line in the middle is an error", map[string]string{"west/audit.log": good + good[:100] + "\n" + good}, "west/audit.log:2: unreadable line", 0},
		{"JSON that is no audit event", map[string]string{"west/audit.log": "{\"level\":\"info\",\"msg\":\"started\"}\n"}, "audit.log:1: unreadable line: not an audit event", 0},
		{"no logs at all", map[string]string{"west/apiserver.log": good}, "no audit logs found below", 0},
		{"a file that is not gzip", map[string]string{"west/audit-1.log.gz": good}, "audit-1.log.gz:1: unpacking", 0},
		{"empty lines are skipped", map[string]string{"west/audit.log": good + "\n" + good}, "", 0},
		{"a log being compressed is read once", map[string]string{"west/audit-1.log": good, "west/audit-1.log.gz": zipped(t, good[:50])}, "", 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r, err := Read(logs(t, tt.files), Options{})
			switch {
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("want an error with %q, got %v", tt.want, err)
			case tt.want == "" && err != nil:
				t.Errorf("want no error, got %v", err)
			case tt.want == "" && r.Input.Torn != tt.torn:
				t.Errorf("want %d torn, got %+v", tt.torn, r.Input)
			}
		})
	}
	if _, err := Read(t.TempDir(), Options{}); !errors.Is(err, ErrNoLogs) {
		t.Errorf("want ErrNoLogs, got %v", err)
	}
}

func TestALongLineIsRead(t *testing.T) {
	e := patchWeb.by("west/", 1, "a", 1, 2)
	e.Message = strings.Repeat("x\"", 1<<19)
	r, err := Read(logs(t, map[string]string{"west/audit.log": string(auditLine(e)) + string(auditLine(e))}), Options{})
	if err != nil || r.Writes.Judged != 2 {
		t.Fatalf("want two writes, got %+v, %v", r, err)
	}
}

func TestTextFitsAScreenAndShowsTheLines(t *testing.T) {
	m := newModel(7)
	m.run(300)
	for _, mut := range mutations {
		mut.do(m)
	}
	r := judged(m)
	var b strings.Builder
	if err := r.Text(&b); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(b.String(), "\n"); n > 45 {
		t.Errorf("%d lines are more than a screen:\n%s", n, b.String())
	}
	v := r.Violations[0]
	for _, want := range []string{"VIOLATIONS", fmt.Sprintf("%s:%d", v.First.File, v.First.Line), fmt.Sprintf("%s:%d", v.Second.File, v.Second.Line)} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is missing in:\n%s", want, b.String())
		}
	}
}

// FuzzDecode holds the scanner against the standard decoder: what that one reads, the scanner reads alike.
func FuzzDecode(f *testing.F) {
	m := newModel(3)
	m.run(30)
	for _, e := range m.events {
		f.Add(bytes.TrimSpace(auditLine(e)))
	}
	f.Add([]byte(`{"stage":"ResponseComplete","verb":"get","userAgent":"a\"\\\u00e9","user":null,"objectRef":{"name":"x","n":[{}, []]},"requestReceivedTimestamp":"2026-01-01T00:00:00.000001Z","stageTimestamp":"2026-01-01T00:00:00Z"}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		var d decoder
		got, keep, err := d.decode(line)
		var want struct {
			Stage, Verb, UserAgent string
			ObjectRef              struct{ Resource, Name string }
		}
		if json.Unmarshal(line, &want) != nil || err != nil || !keep || strings.Count(string(line), "\"verb\"") != 1 ||
			strings.Count(string(line), "\"userAgent\"") != 1 || strings.Count(strings.ToLower(string(line)), "\"objectref\"") != 1 ||
			strings.Count(strings.ToLower(string(line)), "\"name\"") > 1 || got.Body != nil ||
			strings.Count(strings.ToLower(string(line)), "\"verb\"") != 1 || strings.Count(strings.ToLower(string(line)), "\"useragent\"") != 1 {
			return // repeated names and other spellings are outside what API servers write
		}
		if got.Verb != want.Verb || got.UserAgent != want.UserAgent || got.Name != want.ObjectRef.Name {
			t.Errorf("%s\nread as %q %q %q, want %q %q %q", line, got.Verb, got.UserAgent, got.Name, want.Verb, want.UserAgent, want.ObjectRef.Name)
		}
	})
}

func BenchmarkRead(b *testing.B) {
	m := newModel(5)
	m.run(3000)
	var text bytes.Buffer
	for _, e := range m.events {
		text.Write(auditLine(e))
	}
	b.SetBytes(int64(text.Len()))
	for b.Loop() {
		r := &reader{}
		err := r.lines("audit.log", "west", bytes.NewReader(text.Bytes()), func(Event) bool { return true })
		if err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)*float64(len(m.events))/b.Elapsed().Seconds(), "lines/s")
}
