package mutants

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"testing"
)

func TestNoMutantIsStaleOrNamedTwice(t *testing.T) {
	all, err := All()
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 28 {
		t.Errorf("%d mutants: want at least 28", len(all))
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
	}
}
