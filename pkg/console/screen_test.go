package console

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cnatv1alpha1 "github.com/tenure-dev/tenure/pkg/apis/cnat/v1alpha1"
	tenurev1alpha1 "github.com/tenure-dev/tenure/pkg/apis/tenure/v1alpha1"
	"github.com/tenure-dev/tenure/pkg/text"
	"github.com/tenure-dev/tenure/shard/inspect"
	"github.com/tenure-dev/tenure/shard/keyspace"
	"github.com/tenure-dev/tenure/shard/protocol"
	"github.com/tenure-dev/tenure/test/expect"
	"github.com/tenure-dev/tenure/test/must"
)

// show returns a screen as text.
func show(t *testing.T, colour bool, write func(*Screen) error) string {
	t.Helper()
	var text strings.Builder
	must.Succeed(t, write(&Screen{To: &text, Columns: width, Colour: colour}))
	return text.String()
}

// troubled has one of each thing that a screen shows.
func troubled() Snapshot {
	s := healthy()
	s.Records.Shards[1].Status.Holder = ""
	s.Clusters[1].Reported, s.Clusters[1].Reason, s.Clusters[1].Note = true, "Unreachable",
		"Get \"https://10.0.0.1:6443/version\": dial tcp 10.0.0.1:6443: connect: connection refused"
	assigned(&s.Records.Shards[0], "r1-aaaaaa", 5*time.Second)
	s.Records.Shards[2].Status.LastMove = &tenurev1alpha1.ShardMove{
		Kind: string(protocol.Crash), From: "r9-zzzzzz", To: "r0-aaaaaa",
		Time: metav1.NewMicroTime(now.Add(-30 * time.Second)),
	}
	s.Unread = []string{"something that isn't allowed"}
	return s
}

// limited has a cluster that refuses a part of the requests of one replica and all of another's.
func limited() Snapshot {
	s := healthy()
	say := func(at int, views ...inspect.ClusterView) {
		s.Records.Leases[at].Annotations[tenurev1alpha1.TroubleAnnotation] = inspect.EncodeViews(views)
	}
	waits := []inspect.Waiting{{Namespace: "shop", Keys: 1200, WaitSeconds: 42},
		{Namespace: "bank", Keys: 3, WaitSeconds: 3.2}}
	say(0, inspect.ClusterView{Cluster: "east", State: "limited", Cause: "throttling", Running: 16, Ready: 1203,
		WaitSeconds: 42, Namespaces: waits})
	say(1, inspect.ClusterView{Cluster: "east", State: "open", Cause: "throttling", Running: 2, Ready: 1, WaitSeconds: 4,
		Namespaces: waits[1:]},
		inspect.ClusterView{Cluster: "west", State: "closed", Running: 8, Writes: 4, WaitingWrites: 4,
			Ready: 70, WaitSeconds: 1.5,
			Limits:     "50 requests/s, 50 at once, 4 writes at a time",
			Namespaces: []inspect.Waiting{{Namespace: "shop", Keys: 70, WaitSeconds: 1.5}}})
	return s
}

// heldUp asks about an At whose cluster serves nothing to its holder.
func heldUp() Question {
	q := question()
	q.Snapshot.Records.Leases = limited().Records.Leases
	for i := range q.Snapshot.Records.Leases {
		if a := q.Snapshot.Records.Leases[i].Annotations; a != nil {
			a[tenurev1alpha1.TroubleAnnotation] = strings.ReplaceAll(a[tenurev1alpha1.TroubleAnnotation], `"state":"closed"`,
				`"state":"open","cause":"throttling"`)
		}
	}
	return q
}

func TestScreensLookAsTheyAreRecorded(t *testing.T) {
	p, err := Foresee(healthy(), Wish{Replicas: 3})
	must.Succeed(t, err)
	q := question()
	q.At.Status.Epoch = 9
	for name, write := range map[string]func(*Screen) error{
		"healthy":  func(s *Screen) error { return s.Status(Assess(healthy())) },
		"troubled": func(s *Screen) error { return s.Status(Assess(troubled())) },
		"why":      func(s *Screen) error { return s.Why(Explain(q)) },
		"limited":  func(s *Screen) error { return s.Status(Assess(limited())) },
		"held up":  func(s *Screen) error { return s.Why(Explain(heldUp())) },
		"plan":     func(s *Screen) error { return s.Plan(p) },
	} {
		t.Run(name, func(t *testing.T) {
			got := show(t, false, write)
			path := filepath.Join("testdata", strings.ReplaceAll(name, " ", "-")+".txt")
			if os.Getenv("UPDATE_SCREENS") != "" {
				must.Succeed(t, os.WriteFile(path, []byte(got), 0o644))
			}
			want, err := os.ReadFile(path)
			must.Succeed(t, err)
			expect.Equal(t, "the screen; UPDATE_SCREENS=1 records it anew, look at it then", string(want), got)
			if coloured := show(t, true, write); !strings.Contains(coloured, "\x1b[") || plainText(coloured) != got {
				t.Error("colour changes more than the colour")
			}
		})
	}
}

// plainText takes the colour off.
func plainText(text string) string {
	var out strings.Builder
	for i, part := range strings.Split(text, "\x1b[") {
		if i > 0 {
			_, part, _ = strings.Cut(part, "m")
		}
		out.WriteString(part)
	}
	return out.String()
}

func TestNoScreenIsWiderThan80ColumnsOrLongerThanAScreen(t *testing.T) {
	s := Snapshot{Namespace: strings.Repeat("n", 63), Home: "https://" + strings.Repeat("h", 100),
		Now: now, Registered: true}
	for i := range 40 {
		name := fmt.Sprintf("tenure-%s-%02d", strings.Repeat("x", 40), i)
		s.Records.Leases = append(s.Records.Leases, lease(name, time.Second))
		s.Records.Leases[i].Annotations[tenurev1alpha1.TroubleAnnotation] = inspect.EncodeViews([]inspect.ClusterView{{
			Cluster: keyspace.ClusterName(fmt.Sprintf("cluster-%s-%02d", strings.Repeat("y", 60), i)),
			State:   []protocol.ClusterState{protocol.ClusterOpen, protocol.ClusterLimited}[i%2], Cause: "unauthorized",
			Running: 1e9, Ready: 1e9, Writes: 1e9, WaitingWrites: 1e9, WaitSeconds: 1e9, Limits: strings.Repeat("l", 90),
			Namespaces: slices.Repeat([]inspect.Waiting{{Namespace: strings.Repeat("n", 63), Keys: 1e9, WaitSeconds: 1e9}}, 5),
		}})
		cluster := fmt.Sprintf("cluster-%s-%02d", strings.Repeat("y", 60), i)
		s.Clusters = append(s.Clusters, Answer{Cluster: keyspace.ClusterName(cluster), Reason: "Unreachable",
			Note: strings.Repeat("long ", 50)})
		r := shardRecord(cluster, "", name+"-aaaaaa")
		assigned(&r, "somebody-else-with-a-long-name-aaaaaa", 5*time.Second)
		s.Records.Shards = append(s.Records.Shards, r)
	}
	text := show(t, false, func(sc *Screen) error { return sc.Status(Assess(s)) })
	for line := range strings.Lines(text) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > width {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	if n := strings.Count(text, "\n"); n > 95 {
		t.Errorf("%d lines", n)
	}
}

func TestTextFromElsewhereCannotSteerTheTerminal(t *testing.T) {
	const nasty = "\x1b[2J\x1b]0;owned\x07\u009b31m\nfake line\r\u202egnp.exe\u200b\x00\xff"
	s := healthy()
	s.Namespace, s.Home, s.Unread = nasty, nasty, []string{nasty}
	s.Clusters[0].Reason, s.Clusters[0].Note = "Unreachable", nasty+strings.Repeat("x", 10_000)
	s.Clusters[1].Reason = nasty
	s.Records.Leases = append(s.Records.Leases, lease(nasty, time.Second))
	r := shardRecord("west"+nasty, "", nasty)
	assigned(&r, nasty, time.Minute)
	r.Status.LastMove = &tenurev1alpha1.ShardMove{Kind: nasty, From: nasty, To: nasty, Time: metav1.NewMicroTime(now)}
	s.Records.Shards = append(s.Records.Shards, r)
	q := question()
	q.Object.Name, q.Object.Namespace, q.Object.Cluster = nasty, nasty, nasty
	q.At.Spec.Schedule, q.At.Status.PodName = nasty, nasty
	q.At.Status.Conditions = []metav1.Condition{{Type: cnatv1alpha1.ConditionBlocked, Status: metav1.ConditionTrue,
		Reason: nasty, Message: nasty}}
	p, err := Foresee(s, Wish{Replicas: 3})
	must.Succeed(t, err)
	for name, write := range map[string]func(*Screen) error{
		"status": func(sc *Screen) error { return sc.Status(Assess(s)) },
		"why":    func(sc *Screen) error { return sc.Why(Explain(q)) },
		"plan":   func(sc *Screen) error { return sc.Plan(p) },
	} {
		shown := show(t, false, write)
		if !strings.Contains(shown, "\ufffd") {
			t.Errorf("%s: shows nothing of it:\n%s", name, shown)
		}
		for line := range strings.Lines(shown) {
			line = strings.TrimSuffix(line, "\n")
			switch n := utf8.RuneCountInString(line); {
			case n > width:
				t.Errorf("%s: %d columns: %s", name, n, line)
			case strings.HasPrefix(line, "fake line"), text.Line(line, len(line)) != line:
				t.Errorf("%s: %q", name, line)
			}
		}
	}
}

// Who pipes a screen into grep looks for whole names.
func TestOnlyATerminalHasNamesCut(t *testing.T) {
	const name = "tenure-6d4b9c7f8d-4xk2p-vhdkz2"
	titles, rows := []string{"REPLICA", "BUILD", "LAST"}, [][]cell{
		{left(name), left("v0.1.0-22-g0ab45e1"), left(name + " to " + name)}}
	for columns, whole := range map[int]bool{0: true, 1: false, width: false, 200: true} {
		shown := show(t, false, func(s *Screen) error {
			s.Columns = columns
			s.table(titles, rows)
			return s.err
		})
		if strings.Contains(shown, name+" to "+name) != whole {
			t.Errorf("with %d columns:\n%s", columns, shown)
		}
	}
}

func TestALineOfTheHashSpaceIsNeverCut(t *testing.T) {
	const line = "aaaabbbb....ccccaaaabbbbccccdddd"
	f := Fleet{Clusters: []Cluster{
		{Name: "gke-acme-prod-europe-west4-cluster-01", Reason: "Usable", Shards: 8, Held: 8, Objects: 12345, Map: line}}}
	shown := show(t, false, func(s *Screen) error { return s.Status(f) }) // on 80 columns
	if !strings.Contains(shown, line+"\n") || !strings.Contains(shown, "…") {
		t.Errorf("the map is cut, or the name isn't:\n%s", shown)
	}
}

func TestAWordOrNameIsCutInItsMiddle(t *testing.T) {
	for _, c := range []struct {
		text string
		room int
		want string
	}{{"short", 8, "short"}, {"tenure-7d9f-abcde", 12, "tenu…f-abcde"}, {"ab", 1, "a"}} {
		if got := fit(c.text, c.room); got != c.want {
			t.Errorf("%q in %d: %q, want %q", c.text, c.room, got, c.want)
		}
	}
}

func TestAgesAreSaidAsAPersonWould(t *testing.T) {
	for s, want := range map[Seconds]string{
		seconds(1500 * time.Millisecond): "1.5s", seconds(42 * time.Second): "42s",
		seconds(3*time.Minute + 5*time.Second): "3m05s", seconds(26*time.Hour + time.Minute): "26h01m",
		seconds(72 * time.Hour): "3d", seconds(-2 * time.Second): "-2.0s",
		sinceTime(now, time.Time{}): "739939d", -sinceTime(now, time.Time{}): "-739939d", 1e300: "11574074d",
	} {
		if got := age(s); got != want {
			t.Errorf("%g: %s, want %s", float64(s), got, want)
		}
	}
}

func TestThePageShowsAScreenAsItIs(t *testing.T) {
	page, err := os.ReadFile("../../docs/operate.md")
	must.Succeed(t, err)
	screen, err := os.ReadFile("testdata/healthy.txt")
	must.Succeed(t, err)
	shown, _, found := strings.Cut(string(screen), "\nLAST MOVED")
	if !found || !strings.Contains(string(page), "```text\n"+shown+"```\n") {
		t.Errorf("docs/operate.md doesn't show testdata/healthy.txt, which begins so:\n%s", shown)
	}
}
