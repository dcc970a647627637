package mutants

import (
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/test/must"
)

// bugs is how many mutants there are, so that none is lost unnoticed. bench/RESULTS.md tells it, too.
const bugs = 1108

func TestAMutantThatSwallowedAnotherIsRefused(t *testing.T) {
	const sound = "\n== a\nbreaks: x\nfile: f\n--- old\n1\n--- new\n2\n" +
		"\n== b\nbreaks: y\nfile: f\n--- old\n3\n--- new\n4\n"
	if all, err := read(sound); err != nil || len(all) != 2 || all[1].New != "4" {
		t.Errorf("got %v, %v; want two", all, err)
	}
	for name, broken := range map[string]string{
		"separator": strings.Replace(sound, "== b", "=== b", 1), "no separator": strings.Replace(sound, "== b\n", "", 1),
		"nothing": "",
	} {
		if all, err := read(broken); err == nil {
			t.Errorf("%s: got %d mutants", name, len(all))
		}
	}
}

func TestTheTestThatCaughtAMutantIsWrittenBesideIt(t *testing.T) {
	const before = "head\n== a\nbreaks: x\nfile: f\n--- old\n1\n--- new\n2\n" +
		"\n== b\nbreaks: y\nfile: f\ntest: f.TestB\n--- old\n3\n--- new\n4\n"
	after := Remember(before, map[string]string{"a": "f.TestA", "b": "f.TestC"})
	all, err := read(after)
	if err != nil || len(all) != 2 || all[0].Test != "f.TestA" || all[1].Test != "f.TestC" || all[1].File != "f" {
		t.Errorf("got %v, %v; want the two with their tests", all, err)
	}
	if same := Remember(after, nil); same != after {
		t.Errorf("what isn't caught again is forgotten: %s", same)
	}
}

func TestNoMutantIsStaleOrNamedTwice(t *testing.T) {
	all, err := All()
	must.Succeed(t, err)
	if len(all) != bugs {
		t.Errorf("%d mutants: want %d", len(all), bugs)
	}
	results, err := os.ReadFile("../../../../bench/RESULTS.md")
	must.Succeed(t, err)
	told, text := fmt.Sprintf("The list has %d now", bugs), strings.Join(strings.Fields(string(results)), " ")
	if !strings.Contains(text, told) {
		t.Errorf("bench/RESULTS.md doesn't say: %s", told)
	}
	names := map[string]bool{}
	for _, m := range all {
		if names[m.Name] || m.Name == "" || m.Breaks == "" {
			t.Errorf("mutant %q: want a name of its own and what it breaks", m.Name)
		}
		names[m.Name] = true
		source, err := os.ReadFile(filepath.Join("../../../..", m.File))
		if err != nil {
			t.Errorf("mutant %q: %v", m.Name, err)
			continue
		}
		mutated, err := m.Apply(string(source))
		if err != nil {
			t.Error(err)
			continue
		}
		if _, err := parser.ParseFile(token.NewFileSet(), m.File, mutated, 0); err != nil {
			t.Errorf("mutant %q isn't Go: %v", m.Name, err)
		}
		folder, test, known := strings.Cut(m.Test, ".")
		folders := map[string]string{
			filepath.Base(filepath.Dir(m.File)): filepath.Join("../../../..", filepath.Dir(m.File)), "shardtest": "..",
		}
		if known && !isIn(t, folders[folder], test) {
			t.Errorf("mutant %q: %s isn't there: correct the line, or leave it out", m.Name, m.Test)
		}
	}
}

func isIn(t *testing.T, folder, test string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*_test.go"))
	must.Succeed(t, err)
	return slices.ContainsFunc(files, func(file string) bool {
		source, err := os.ReadFile(file)
		must.Succeed(t, err)
		return strings.Contains(string(source), "\nfunc "+test+"(")
	})
}
