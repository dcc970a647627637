package witness

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenure-dev/tenure/bench/audit"
	"github.com/tenure-dev/tenure/bench/audit/audittest"
	"github.com/tenure-dev/tenure/test/expect"
	"github.com/tenure-dev/tenure/test/must"
)

// logs writes files below a new folder.
func logs(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		must.Succeed(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must.Succeed(t, os.WriteFile(path, []byte(text), 0o644))
	}
	return dir
}

func zipped(t *testing.T, text string) string {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, err := z.Write([]byte(text))
	must.Succeed(t, err)
	must.Succeed(t, z.Close())
	return b.String()
}

func TestReadSeesWhatJudgeSees(t *testing.T) {
	for i := range 3 {
		m := newModel(7)
		m.run(300)
		for range i {
			m.spoil(17 * i)
		}
		files := make(map[string]string)
		for n, e := range m.events {
			name := e.Cluster + "/audit.log"
			if n < len(m.events)/3 {
				name = e.Cluster + "/audit-2026-11-20T10-00-00.000.log"
			}
			files[name] += audittest.Line(e)
		}
		for name, text := range files {
			if strings.Contains(name, "audit-") {
				delete(files, name)
				files[name+".gz"] = zipped(t, text)
			}
		}
		r, err := Read(logs(t, files), Options{Rules: few})
		must.Succeed(t, err)
		want := judged(m)
		expect.Equal(t, fmt.Sprintf("log %d: counts", i), want.Counts, r.Counts)
		expect.Equal(t, fmt.Sprintf("log %d: Ats", i), want.Ats, r.Ats)
		expect.Equal(t, fmt.Sprintf("log %d: moves", i), want.Moves, r.Moves)
		if r.Input.Lines != len(m.events) {
			t.Errorf("log %d: read %d lines of %d", i, r.Input.Lines, len(m.events))
		}
	}
}

// TestOneLogOfSeveralClustersIsReadAsTheLogOfEach has one API server serve all workload clusters, which are virtual.
func TestOneLogOfSeveralClustersIsReadAsTheLogOfEach(t *testing.T) {
	m := newModel(7)
	m.run(300)
	m.spoil(17)
	files := make(map[string]string)
	for _, e := range m.events {
		server := "home"
		if e.Cluster != "home" {
			server, e.Namespace = "host", e.Cluster+"-"+e.Namespace
		}
		files[server+"/audit.log"] += audittest.Line(e)
	}
	want := judged(m)
	r, err := Read(logs(t, files), Options{Rules: few, Cluster: func(server, namespace string) string {
		if name, ok := strings.CutSuffix(namespace, "-ns"); ok && server == "host" {
			return name
		}
		return server
	}})
	must.Succeed(t, err)
	expect.Equal(t, "counts", want.Counts, r.Counts)
	r.Ats.Latest = strings.ReplaceAll(r.Ats.Latest, "east-ns", "ns")
	expect.Equal(t, "Ats", want.Ats, r.Ats)
}

// TestAVirtualClusterMayBeSilent has a virtual cluster that gets no request for two minutes, while others on its
// API server get some.
func TestAVirtualClusterMayBeSilent(t *testing.T) {
	for _, tt := range []struct {
		name string
		busy bool
		want map[Kind]int
	}{
		{"while others are asked", true, map[Kind]int{}},
		{"as all others are", false, map[Kind]int{MissingFile: 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			text, at := "", ""
			for s := 0; s <= 120; s += 10 {
				switch {
				case s == 0 || s == 120:
					at = "a-ns"
				case tt.busy:
					at = "b-ns"
				default:
					continue
				}
				e := parse(t, fmt.Sprintf("%d-%d - create map:x%d", 1000*s, 1000*s+1, s))[0]
				e.Namespace = at
				text += audittest.Line(e)
			}
			r, err := Read(logs(t, map[string]string{"host/audit.log": text}), Options{
				Rules:   Rules{Unwitnessed: "nothing of ours is in it"},
				Cluster: func(_, namespace string) string { return namespace[:1] },
			})
			must.Succeed(t, err)
			if diff := cmp.Diff(tt.want, broken(r)); diff != "" {
				t.Errorf("(-want +got):\n%s\n%v", diff, r.Err())
			}
		})
	}
}

func TestReadNamesBadInput(t *testing.T) {
	// Rotated at the time of the model, and an hour before.
	const now, before = "audit-2026-09-21T14-13-20.000.log", "audit-2026-09-21T13-13-20.000.log"
	good := audittest.Line(parse(t, "1-2 west/@1:a patch web:x")[0])
	tests := []struct {
		name  string
		files map[string]string
		want  string // part of the error, or of the violation; empty for none
	}{
		{"a last line that only lacks its end of line is read",
			map[string]string{"west/audit.log": good + strings.TrimSpace(good)}, ""},
		{"a last line that is cut short",
			map[string]string{"west/audit.log": good + good[:len(good)/2]},
			"truncated-line: west/audit.log:2: the last line is cut short"},
		{"a packed log that is cut short",
			map[string]string{"west/audit-1.log.gz": zipped(t, good+good)[:90]}, "truncated-line: west/audit-1.log.gz:"},
		{"a torn line in the middle",
			map[string]string{"west/audit.log": good + good[:100] + "\n" + good}, "west/audit.log:2: unreadable line"},
		{"JSON that is no audit event",
			map[string]string{"west/audit.log": "{\"level\":\"info\",\"msg\":\"started\"}\n"},
			"audit.log:1: unreadable line: not an audit event"},
		{"an empty log beside another cluster's", map[string]string{"west/audit.log": good, "east/audit.log": ""},
			"missing-file: the log of east"},
		{"a new file that is empty", map[string]string{"west/audit.log": "", "west/" + now: good}, ""},
		{"no logs at all", map[string]string{"west/apiserver.log": good}, "no audit logs found below"},
		{"a file that is not gzip", map[string]string{"west/audit-1.log.gz": good}, "audit-1.log.gz:1: unpacking"},
		{"empty lines are skipped", map[string]string{"west/audit.log": good + "\n" + good}, ""},
		{"a log being compressed is read once",
			map[string]string{"west/audit-1.log": good, "west/audit-1.log.gz": zipped(t, good[:50])}, ""},
		{"numbered logs, all there",
			map[string]string{"west/audit.log": good, "west/audit.log.1": good, "west/audit.log.2": good}, ""},
		{"numbered logs, one missing",
			map[string]string{"west/audit.log": good, "west/audit.log.1": good, "west/audit.log.3": good},
			"missing-file: west/audit.log.2 isn't there"},
		{"numbered logs without the last",
			map[string]string{"west/audit.log.1": good}, "missing-file: west/audit.log isn't there"},
		{"dated logs, all there", map[string]string{"west/audit.log": good, "west/" + now: good}, ""},
		{"dated logs, one missing",
			map[string]string{"west/audit.log": good, "west/" + before: good}, "the next file begins long after"},
		{"dated logs without the last", map[string]string{"west/" + now: good}, "missing-file: west/audit.log isn't there"},
	}
	strict := Rules{Waived: map[Kind]string{NoAts: "a few lines", NoRecords: "a few lines", NoLeases: "a few lines"}}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := logs(t, tt.files)
			r, err := Read(dir, Options{Rules: strict})
			if err == nil {
				err = r.Err()
			}
			switch {
			case tt.want != "" && (err == nil || !strings.Contains(strings.ReplaceAll(err.Error(), dir+"/", ""), tt.want)):
				t.Errorf("want an error with %q, got %v", tt.want, err)
			case tt.want == "" && err != nil:
				t.Errorf("want no error, got %v", err)
			}
		})
	}
	if _, err := Read(t.TempDir(), Options{}); !errors.Is(err, audit.ErrNoLogs) {
		t.Errorf("want ErrNoLogs, got %v", err)
	}
}

func TestALongLineIsRead(t *testing.T) {
	e := parse(t, "1-2 west/@1:a patch web:x")[0]
	e.Message = strings.Repeat("x\"", 1<<19)
	r, err := Read(logs(t, map[string]string{"west/audit.log": audittest.Line(e) + audittest.Line(e)}), Options{})
	if err != nil || r.Writes.Judged != 2 {
		t.Fatalf("want two writes, got %+v, %v", r, err)
	}
}

func TestTextFitsAScreenAndShowsTheLines(t *testing.T) {
	m := newModel(7)
	m.run(300)
	for i := range 40 {
		m.spoil(i)
	}
	r := judged(m)
	var b strings.Builder
	must.Succeed(t, r.Text(&b))
	if n := strings.Count(b.String(), "\n"); n > 50 {
		t.Errorf("%d lines are more than a screen:\n%s", n, b.String())
	}
	v := r.Violations[0]
	for _, want := range []string{"VIOLATIONS", fmt.Sprintf("%s:%d", v.First.File, v.First.Line), fmt.Sprintf("%s:%d",
		v.Second.File, v.Second.Line)} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is missing in:\n%s", want, b.String())
		}
	}
}

func TestAClusterOfWhichThereIsNoLogIsMissing(t *testing.T) {
	m := newModel(7)
	m.run(300)
	files := make(map[string]string)
	for _, e := range m.events {
		files[e.Cluster+"/audit.log"] += audittest.Line(e)
	}
	rules := few
	rules.Waived = maps.Clone(few.Waived)
	delete(rules.Waived, MissingFile)
	missing := func() (found []string) {
		t.Helper()
		r, err := Read(logs(t, files), Options{Rules: rules, Complete: true})
		must.Succeed(t, err)
		for _, v := range r.Violations {
			if v.Kind == MissingFile {
				found = append(found, v.Detail)
			}
		}
		return found
	}
	if found := missing(); len(found) > 0 {
		t.Errorf("all logs are there: %q", found)
	}
	delete(files, "east/audit.log")
	if found := missing(); len(found) != 1 || !strings.Contains(found[0], "shards of east had holders") {
		t.Errorf("no log: %q", found)
	}
}
