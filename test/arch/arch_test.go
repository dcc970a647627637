// Package arch holds the layout of the project to its rules: which package may import which.
package arch

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/tenure-dev/tenure/"

// goList returns the lines that go list prints at the root of the module.
func goList(t *testing.T, args ...string) []string {
	t.Helper()
	list := exec.Command("go", append([]string{"list"}, args...)...)
	list.Dir = "../.."
	out, err := list.Output()
	if err != nil {
		t.Fatalf("%v: %v", list.Args, err)
	}
	return strings.Split(strings.TrimSpace(string(out)), "\n")
}

// imports lists the imports of every package of the module, tests left out.
func imports(t *testing.T) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	for _, line := range goList(t, "-f", `{{.ImportPath}} {{join .Imports " "}}`, module+"...") {
		fields := strings.Fields(line)
		all[strings.TrimPrefix(fields[0], module)] = fields[1:]
	}
	if len(all) < 10 {
		t.Fatalf("only %d packages found", len(all))
	}
	return all
}

func TestPurePackagesImportTheStandardLibraryAndPurePackagesOnly(t *testing.T) {
	all := imports(t)
	pure := []string{"shard/keyspace", "shard/protocol", "shard/plan", "shard/internal/ownership", "shard/internal/driver",
		"shard/internal/shardtest", "bench/algorithms"}
	for _, p := range pure {
		list, ok := all[p]
		if !ok {
			t.Errorf("%s: no such package; this test is out of date", p)
		}
		for _, imported := range list {
			ours := strings.TrimPrefix(imported, module)
			top, _, _ := strings.Cut(imported, "/")
			switch {
			case ours != imported && slices.Contains(pure, ours):
			case slices.Contains([]string{"net", "os", "syscall"}, top): // the standard library's own I/O
				t.Errorf("%s imports %s", p, imported)
			case ours == imported && !strings.Contains(top, "."): // standard library
			default:
				t.Errorf("%s imports %s", p, imported)
			}
		}
	}
}

func TestPackagesThatDoIOInShardDoNotImportOneAnother(t *testing.T) {
	// Not among them: informer and cas, which others of these are built upon.
	io := []string{"shard/internal/engage", "shard/internal/member", "shard/internal/pods", "shard/internal/record"}
	all := imports(t)
	for _, p := range io {
		list, ok := all[p]
		if !ok {
			t.Errorf("%s: no such package; this test is out of date", p)
		}
		for _, imported := range list {
			if ours := strings.TrimPrefix(imported, module); slices.Contains(io, ours) || ours == "shard" {
				t.Errorf("%s imports %s: package shard joins them", p, ours)
			}
		}
	}
}

// isOf reports whether a package is one of some, or below it.
func isOf(p string, tops ...string) bool {
	return slices.ContainsFunc(tops, func(top string) bool { return p == top || strings.HasPrefix(p, top+"/") })
}

// mayNotImport fails for each of some packages, and for those below, that imports one of others. All of them must
// exist.
func mayNotImport(t *testing.T, some []string, others ...string) {
	t.Helper()
	seen := map[string]bool{}
	for p, list := range imports(t) {
		for _, top := range slices.Concat(some, others) {
			seen[top] = seen[top] || isOf(p, top)
		}
		if !isOf(p, some...) {
			continue
		}
		for _, imported := range list {
			if ours := strings.TrimPrefix(imported, module); ours != imported && isOf(ours, others...) {
				t.Errorf("%s imports %s", p, ours)
			}
		}
	}
	for _, top := range slices.Concat(some, others) {
		if !seen[top] {
			t.Errorf("%s: no such package; this test is out of date", top)
		}
	}
}

func TestReconcilersKnowNothingOfSharding(t *testing.T) {
	mayNotImport(t, []string{"pkg/at", "pkg/replication", "pkg/apis"}, "shard")
}

func TestWhatIsShippedKnowsNothingOfWhatTestsIt(t *testing.T) {
	mayNotImport(t, []string{"cmd/tenure", "pkg", "shard"}, "test", "bench")
}

func TestThereIsNoPackageForEverythingElse(t *testing.T) {
	for p := range imports(t) {
		for part := range strings.SplitSeq(p, "/") {
			if slices.Contains([]string{"util", "utils", "common", "helpers", "misc"}, part) {
				t.Errorf("%s: say what it is for", p)
			}
		}
	}
}

func TestTheProductionBinaryHasNeitherHooksNorPlantedFaults(t *testing.T) {
	evidence := func(flags ...string) (found []string) {
		for _, path := range goList(t, append(flags, "-deps", "./cmd/tenure")...) {
			ours := strings.TrimPrefix(path, module)
			if strings.HasPrefix(ours, "test/") || strings.HasPrefix(ours, "bench/") {
				found = append(found, ours)
			}
		}
		return found
	}
	if found := evidence(); found != nil {
		t.Errorf("cmd/tenure is built from %v", found)
	}
	if found := evidence("-tags", "lab"); !slices.Contains(found, "test/hooks") {
		t.Errorf("with -tags lab, cmd/tenure is built from %v of bench/ and test/: want test/hooks among them", found)
	}
}

func TestAPITypesAreImportedUnderGroupAndVersion(t *testing.T) {
	imported := regexp.MustCompile(`(?m)^\s+(?:import )?(\S*) ?"` + module + `pkg/apis/(\w+)/(\w+)"$`)
	files, err := exec.Command("git", "-C", "../..", "ls-files", "-z", "*.go").Output()
	if err != nil {
		var said []byte
		if failed := (*exec.ExitError)(nil); errors.As(err, &failed) {
			said = failed.Stderr
		}
		t.Fatalf("this test takes git and a clone made by it, not an archive of the sources: git ls-files: %v: %s", err, said)
	}
	seen := 0
	for name := range strings.SplitSeq(strings.TrimSuffix(string(files), "\x00"), "\x00") {
		source, err := os.ReadFile(filepath.Join("../..", name))
		if errors.Is(err, os.ErrNotExist) {
			continue // deleted, and not committed yet
		} else if err != nil {
			t.Fatal(err)
		}
		for _, m := range imported.FindAllStringSubmatch(string(source), -1) {
			seen++
			if want := m[2] + m[3]; m[1] != want {
				t.Errorf("%s imports pkg/apis/%s/%s as %q, want %q", name, m[2], m[3], m[1], want)
			}
		}
	}
	if seen < 10 {
		t.Errorf("only %d imports of API types found: this test is out of date", seen)
	}
}
