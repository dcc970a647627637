package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tenure-dev/tenure/shard/protocol"
	"github.com/tenure-dev/tenure/test/expect"
	"github.com/tenure-dev/tenure/test/must"
)

// shell starts a shell script in the place of a replica.
func shell(t *testing.T, script string, addresses int) *Replica {
	t.Helper()
	r, err := StartProgram(Program{
		Name: "r1", Binary: "/bin/sh", LogPath: filepath.Join(t.TempDir(), "log"), Addresses: addresses,
		Args: func(a []string) []string { return append([]string{"-c", script, "sh"}, a...) },
	})
	must.Succeed(t, err)
	t.Cleanup(func() { r.Kill() })
	return r
}

func logged(t *testing.T, r *Replica, want string) {
	t.Helper()
	err := Eventually(t.Context(), time.Minute, func() error {
		if content, err := os.ReadFile(r.LogPath); err != nil || !strings.Contains(string(content), want) {
			return os.ErrNotExist
		}
		return nil
	})
	if err != nil {
		t.Fatalf("%q was never logged: %v", want, err)
	}
}

func TestAReplicaThatFindsItsPortTakenIsStartedAgainWithAnother(t *testing.T) {
	tried := filepath.Join(t.TempDir(), "tried")
	r := shell(t, `if [ -e `+tried+` ]; then echo up at $1; exec sleep 60; fi
		touch `+tried+`; echo "listen tcp $1: bind: address already in use"; exit 1`, 1)
	logged(t, r, "up at ")
	if content, err := os.ReadFile(r.LogPath); err != nil || !strings.Contains(string(content), "up at "+r.Address(0)) {
		t.Errorf("it listens elsewhere than at %s: %s", r.Address(0), content)
	}
	if r.Ended() || r.DiedByItself() != nil {
		t.Error("the start that failed is taken for the replica's end")
	}
}

func TestHowAReplicaEndedIsTold(t *testing.T) {
	for _, c := range []struct {
		name, script, want string // of DiedByItself; "" is nil
		do                 func(*Replica) error
		err                string
	}{
		{"by itself", "echo why; exit 3", "why", func(r *Replica) error { return r.Wait(time.Minute) }, "exit status 3"},
		{"killed", "echo up; exec sleep 60", "", func(r *Replica) error { r.Kill(); return nil }, ""},
		{"asked", "trap 'exit 0' TERM; echo up; while :; do sleep 0.1; done", "",
			func(r *Replica) error { return r.Leave(t.Context(), time.Minute) }, ""},
		{"asked, and deaf", "trap '' TERM; echo up; while :; do sleep 0.1; done", "",
			func(r *Replica) error { return r.Leave(context.Background(), 200*time.Millisecond) }, "did not end within 200ms"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := shell(t, c.script, 0)
			if c.want == "" {
				logged(t, r, "up")
			}
			if err := c.do(r); (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("got %v, want %q", err, c.err)
			}
			if !r.Ended() {
				t.Error("it still runs")
			}
			if err := r.DiedByItself(); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("died by itself: %v, want %q", err, c.want)
			}
		})
	}
}

func TestAPausedReplicaIsStoppedUntilItResumes(t *testing.T) {
	r := shell(t, "echo up; exec sleep 60", 0)
	logged(t, r, "up")
	is := func(want bool) {
		t.Helper()
		must.Succeed(t, Eventually(t.Context(), time.Minute, func() error {
			if stopped, err := r.Stopped(); err != nil || stopped != want {
				return fmt.Errorf("stopped: %v, %w", stopped, err)
			}
			return nil
		}))
	}
	is(false)
	must.Succeed(t, r.Pause())
	is(true)
	must.Succeed(t, r.Resume())
	is(false)
	r.Kill()
	if err := r.Pause(); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("pausing one that has ended: %v", err)
	}
	if stopped, err := r.Stopped(); stopped || err == nil {
		t.Errorf("one that has ended: stopped %v, %v", stopped, err)
	}
}

func TestReplicasDoNotInheritTheirFlags(t *testing.T) {
	got := ownEnvironment([]string{"PATH=/bin", "TENURE_SHARDING=off", "OTEL_TRACES_SAMPLER=always_off",
		"KUBECONFIG=/home", "HOME=/"})
	expect.Equal(t, "environment", []string{"PATH=/bin", "HOME=/"}, got)
}

func TestALogIsReadInWholeLines(t *testing.T) {
	log := &Log{path: filepath.Join(t.TempDir(), "log")}
	if _, err := log.Lines(); err == nil {
		t.Error("a log that isn't there was read")
	}
	var content string
	for _, c := range []struct {
		add  string
		want []string
	}{{"one\ntw", []string{"one"}}, {"", []string{"one"}}, {"o\nthree\n", []string{"one", "two", "three"}}} {
		content += c.add
		must.Succeed(t, os.WriteFile(log.path, []byte(content), 0o600))
		lines, err := log.Lines()
		var got []string
		for _, l := range lines {
			got = append(got, l.Text)
		}
		if diff := cmp.Diff(c.want, got); diff != "" || err != nil {
			t.Errorf("after %q (-want +got): %v\n%s", c.add, err, diff)
		}
	}
}

func TestLinesOfALog(t *testing.T) {
	for _, c := range []struct {
		text                       string
		activation, lapse, crashed bool
	}{
		{
			`{"time":"2030-01-02T03:04:09.5Z","level":"INFO","msg":"shard active","shard":"west/01","epoch":7,"kind":"Crash","gapMs":0.5}`, true, false, false,
		},
		{`{"msg":"shard closed","shard":"west/01","epoch":7}`, false, false, false},
		{`{"msg":"incarnation lapsed: stopping everything it held","incarnation":"r2-x"}`, false, true, false},
		{`{"msg":"Observed a panic"}`, false, false, true},
		{"panic: boom", false, false, true},
		{"2030/01/02 03:04:05 http: panic serving 127.0.0.1:4711: boom", false, false, true},
		{"WARNING: DATA RACE", false, false, true},
		{`{"shard":7}`, false, false, false},
	} {
		l := ParseLine(c.text)
		if l.Text != c.text || l.Activation() != c.activation || l.Lapse() != c.lapse || l.Crashed() != c.crashed {
			t.Errorf("%s: read as %+v", c.text, l)
		}
	}
	l := ParseLine(
		`{"time":"2030-01-02T03:04:09.5Z","msg":"shard active","shard":"west/01","epoch":7,"kind":"Crash","from":"r1-x","gapMs":0.5}`)
	want := Line{Time: time.Date(2030, 1, 2, 3, 4, 9, 5e8, time.UTC), Msg: "shard active", Shard: "west/01", Epoch: 7,
		Kind: protocol.Crash, From: "r1-x", GapMS: 0.5, Text: l.Text}
	if diff := cmp.Diff(want, l); diff != "" || l.Gap() != 500*time.Microsecond {
		t.Errorf("gap %v, line (-want +got):\n%s", l.Gap(), diff)
	}
}

func TestMetricsAreSummedOverSeries(t *testing.T) {
	m, err := ParseMetrics(strings.NewReader(`# TYPE workqueue_depth gauge
workqueue_depth{controller="at",name="at",priority="-100"} 7
workqueue_depth{controller="at",name="at",priority="0"} 5
workqueue_depth{controller="other",name="other",priority="0"} 99
tenure_watch_objects_discarded_total{cluster="west"} 3
tenure_watch_objects_discarded_total{cluster="a \"}\" name"} 4
# TYPE h histogram
h_bucket{le="+Inf"} 9
h_sum 1
h_count 9
`))
	must.Succeed(t, err)
	for _, c := range []struct {
		name   string
		labels map[string]string
		want   float64
	}{
		{"workqueue_depth", map[string]string{"name": "at"}, 12}, {"workqueue_depth", nil, 111},
		{"workqueue_depth", map[string]string{"name": "none"}, 0}, {"workqueue_depth", map[string]string{"unknown": ""}, 0},
		{"h", nil, 9},
	} {
		if got, err := m.Sum(c.name, c.labels); err != nil || got != c.want {
			t.Errorf("%s%v = %v (%v), want %v", c.name, c.labels, got, err, c.want)
		}
	}
	if _, err := m.Sum("missing", nil); err == nil {
		t.Error("a metric that isn't there was summed up")
	}
	expect.Equal(t, "by cluster", map[string]float64{"west": 3, `a "}" name`: 4},
		m.By("tenure_watch_objects_discarded_total", "cluster"))
	if m.By("missing", "cluster") != nil {
		t.Error("who doesn't tell is taken for one with none")
	}
	if _, err := ParseMetrics(strings.NewReader("nonsense\n")); err == nil {
		t.Error("nonsense was taken for metrics")
	}
}

func TestAReplicaThatDoesNotAnswerHasNoMetrics(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	defer listener.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := scrape(ctx, listener.Addr().String()); err == nil {
		t.Error("silence was taken for metrics")
	}
}

func TestWhatIsWaitedForInVainIsToldWithWhatWasSeenLast(t *testing.T) {
	err := Eventually(t.Context(), 60*time.Millisecond, func() error { return os.ErrPermission })
	if err == nil || !strings.Contains(err.Error(), "not within 60ms") ||
		!strings.Contains(err.Error(), os.ErrPermission.Error()) {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(os.ErrDeadlineExceeded)
	if err := Eventually(ctx, time.Minute, func() error { return os.ErrPermission }); err == nil ||
		!strings.Contains(err.Error(), os.ErrDeadlineExceeded.Error()) {
		t.Errorf("got %v", err)
	}
}

func TestWhatIsWaitedForForLongIsLookedAtMoreRarely(t *testing.T) {
	for _, c := range []struct {
		takes time.Duration // one look
		most  int           // looks within two minutes
	}{{0, 140}, {time.Second, 41}} {
		synctest.Test(t, func(t *testing.T) {
			began, looks := time.Now(), 0
			must.Succeed(t, Eventually(t.Context(), time.Hour, func() error {
				time.Sleep(c.takes)
				if looks++; time.Since(began) < 2*time.Minute {
					return os.ErrNotExist
				}
				return nil
			}))
			if late := time.Since(began) - 2*time.Minute; looks > c.most || late > pollAtLeast+c.takes {
				t.Errorf("%d looks that take %v, want %d at most; the last %v late", looks, c.takes, c.most, late)
			}
		})
	}
}

func TestAFleetWithoutClustersIsNeverAtRest(t *testing.T) {
	f := &Fleet{}
	if err := errors.Join(f.Inactive(t.Context()), f.Unsettled(t.Context())); err == nil ||
		strings.Count(err.Error(), "no cluster") != 2 {
		t.Errorf("got %v", err)
	}
}

func TestReplicaOfAnIncarnation(t *testing.T) {
	for in, want := range map[string]string{"r1-abc": "r1", "my-pod-0-x": "my-pod-0", "": "", "r1": "r1"} {
		if got := ReplicaOf(in); got != want {
			t.Errorf("ReplicaOf(%q) = %q, want %q", in, got, want)
		}
	}
}
