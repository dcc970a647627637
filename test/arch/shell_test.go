package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/test/must"
)

// The files of package shard pass inputs to the pure packages and carry out their effects. A file that many others
// call, and that calls those same files, would be a second place of decisions.
func TestNoFileOfTheShellIsCalledBackByManyOfTheFilesThatItCalls(t *testing.T) {
	calls := fileCalls(t, "../../shard")
	if len(calls) < 8 {
		t.Fatalf("calls between only %d files found: this test is out of date", len(calls))
	}
	for file, callees := range calls {
		var mutual []string
		for callee := range callees {
			if calls[callee][file] {
				mutual = append(mutual, callee)
			}
		}
		if slices.Sort(mutual); len(mutual) > 2 {
			t.Errorf("shard/%s calls %v, and each of them calls it", file, mutual)
		}
	}
}

// fileCalls returns, for each file of a package, the other files whose functions or methods it uses.
func fileCalls(t *testing.T, dir string) map[string]map[string]bool {
	t.Helper()
	set := token.NewFileSet()
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	must.Succeed(t, err)
	var files []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(set, name, nil, parser.SkipObjectResolution)
		must.Succeed(t, err)
		files = append(files, file)
	}
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	pkg, err := (&types.Config{Importer: importerOf(t, set, "./"+filepath.Base(dir))}).Check(dir, set, files, info)
	must.Succeed(t, err)
	calls := map[string]map[string]bool{}
	for ident, object := range info.Uses {
		if _, ok := object.(*types.Func); !ok || object.Pkg() != pkg {
			continue
		}
		at := func(p token.Pos) string { return filepath.Base(set.Position(p).Filename) }
		if in, of := at(ident.Pos()), at(object.Pos()); in != of {
			if calls[in] == nil {
				calls[in] = map[string]bool{}
			}
			calls[in][of] = true
		}
	}
	return calls
}
