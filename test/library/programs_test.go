package library

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/multicluster-runtime/pkg/clusters"

	"github.com/tenure-dev/tenure/test/lab/labtest"
	"github.com/tenure-dev/tenure/test/lab/localplane"
	"github.com/tenure-dev/tenure/test/library/coordinated"
	"github.com/tenure-dev/tenure/test/library/elected"
	"github.com/tenure-dev/tenure/test/must"
)

// fewLines is what a diff in docs/library.md may have at most.
const fewLines = 20

var diffs = regexp.MustCompile("(?s)<!-- ([a-z]+) -->\n```diff\n(.*?)```")

// docs/library.md shows how two programs are sharded. Both are here, before and after, and the page has all that
// differs but the imports.
func TestThePageShowsAllThatIsChangedInAProgram(t *testing.T) {
	page, err := os.ReadFile("../../docs/library.md")
	must.Succeed(t, err)
	found := diffs.FindAllStringSubmatch(string(page), -1)
	if len(found) != 2 {
		t.Fatalf("%d diffs are on the page, want 2", len(found))
	}
	for _, m := range found {
		before, after := program(t, m[1], "Before"), program(t, m[1], "After")
		for _, complaint := range compare(before, after, m[2]) {
			t.Errorf("%s: %s", m[1], complaint)
		}
	}
}

// The README shows the main lines of one of them.
func TestTheReadmeShowsLinesOfTheDiff(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	must.Succeed(t, err)
	page, err := os.ReadFile("../../docs/library.md")
	must.Succeed(t, err)
	_, rest, _ := strings.Cut(string(readme), "```diff\n")
	diff, _, found := strings.Cut(rest, "```")
	if !found {
		t.Fatal("there is no diff")
	}
	for line := range strings.Lines(diff) {
		if line != " \t...\n" && !strings.Contains(string(page), "\n"+line) {
			t.Errorf("docs/library.md doesn't have %q", line)
		}
	}
}

func TestADiffIsRefusedThatIsNotTheProgramsOwn(t *testing.T) {
	before, after := []string{"a", "b", "c"}, []string{"a", "x", "c"}
	for diff, right := range map[string]bool{
		" a\n-b\n+x\n c\n": true, "-b\n+x\n": true,
		"-b\n": false, "+x\n": false, "-a\n-b\n+x\n": false, "-b\n+y\n": false, " z\n-b\n+x\n": false, "": false,
		"-b\n+x\n" + strings.Repeat("+x\n", fewLines): false,
	} {
		if got := compare(before, after, diff); (len(got) == 0) != right {
			t.Errorf("%q: %v", diff, got)
		}
	}
}

// program returns a program's lines from its first function on, which the page calls Run.
func program(t *testing.T, folder, which string) []string {
	t.Helper()
	text, err := os.ReadFile(folder + "/" + strings.ToLower(which) + ".go")
	must.Succeed(t, err)
	_, body, _ := strings.Cut(string(text), "\nfunc Run"+which+"(")
	return strings.Split("func Run("+body, "\n")
}

// compare says what is wrong with a diff of two texts: lines that aren't theirs, too many of them, and what it leaves
// out.
func compare(before, after []string, diff string) (complaints []string) {
	changed := 0
	from, to := slices.Clone(before), slices.Clone(after)
	for line := range strings.Lines(diff) {
		line = strings.TrimSuffix(line, "\n")
		if line == "" || line == "@@" {
			continue
		}
		text := line[1:]
		var all []*[]string
		switch line[0] {
		case '-':
			all, changed = append(all, &from), changed+1
		case '+':
			all, changed = append(all, &to), changed+1
		default:
			if !slices.Contains(before, text) || !slices.Contains(after, text) {
				complaints = append(complaints, "isn't in both: "+text)
			}
		}
		for _, lines := range all {
			i := slices.Index(*lines, text)
			if i < 0 {
				complaints = append(complaints, "isn't there: "+line)
				continue
			}
			*lines = slices.Delete(*lines, i, i+1)
		}
	}
	if !slices.Equal(from, to) {
		complaints = append(complaints, "the programs differ in more than the page shows")
	}
	if changed >= fewLines {
		complaints = append(complaints, "too many lines")
	}
	return complaints
}

// Variables of a process that is a replica of one of the programs, and not a test.
const (
	variableProgram = "LIBRARY_PROGRAM"
	variablePod     = "POD_NAME"
	variableHome    = "LIBRARY_HOME"
	variableWest    = "LIBRARY_WEST"
)

// A process has one controller of a name, so each replica of the programs is a process of its own: this one's program,
// started anew.
func TestMain(m *testing.M) {
	program := os.Getenv(variableProgram)
	if program == "" {
		os.Exit(m.Run())
	}
	if err := replica(program); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func replica(program string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	ctrl.SetLogger(logr.FromSlogHandler(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})))
	home, err := clientcmd.BuildConfigFromFlags("", os.Getenv(variableHome))
	if err != nil {
		return err
	}
	opts := manager.Options{Scheme: scheme.Scheme, Metrics: metricsserver.Options{BindAddress: "0"}}
	if program == "elected" {
		return elected.RunAfter(ctx, home, opts, os.Getenv(variablePod))
	}
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv(variableWest))
	if err != nil {
		return err
	}
	west, err := cluster.New(config)
	if err != nil {
		return err
	}
	p := &provider{clusters.New[cluster.Cluster]()}
	if err := p.Add(ctx, "west", west, nil); err != nil {
		return err
	}
	return coordinated.RunAfter(ctx, home, p, opts, os.Getenv(variablePod))
}

func TestTheProgramsOfThePageAreSharded(t *testing.T) {
	t.Run("elected", func(t *testing.T) {
		plane := labtest.Planes(t, localplane.ClusterConfig{Name: "only"}).Cluster("only")
		prepareHome(t, plane)
		shared(t, fill(t, plane), variableProgram+"=elected", variableHome+"="+plane.Kubeconfig())
	})
	t.Run("coordinated", func(t *testing.T) {
		planes, west := startPlanes(t)
		shared(t, west, variableProgram+"=coordinated", variableHome+"="+planes.Cluster("home").Kubeconfig(),
			variableWest+"="+planes.Cluster("west").Kubeconfig())
	})
}

// shared runs two replicas of a program until each has signed a part of the objects, and together all of them. Then one
// leaves, and the other signs what it had.
func shared(t *testing.T, in client.Client, environment ...string) {
	t.Helper()
	leave := map[string]func(){}
	for _, name := range []string{"a", "b"} {
		var said bytes.Buffer
		program := exec.Command(os.Args[0])
		program.Env = append(os.Environ(), append(environment, variablePod+"="+name)...)
		program.Stdout, program.Stderr = &said, &said
		must.Succeed(t, localplane.StartChild(program))
		leave[name] = sync.OnceFunc(func() {
			_ = program.Process.Signal(syscall.SIGTERM) // if it has ended, Wait says so
			if err := program.Wait(); err != nil {
				t.Errorf("replica %s: %v\n%s", name, err, said.String())
			}
		})
		t.Cleanup(leave[name])
	}
	labtest.Until(t, "both replicas have signed their parts", func() bool {
		by := signatures(t, in, "signed-by")
		return by["a"] > 0 && by["b"] > 0 && by["a"]+by["b"] == objects
	})
	leave["a"]()
	labtest.Until(t, "b has taken over all of it", func() bool { return signatures(t, in, "signed-by")["b"] == objects })
}
