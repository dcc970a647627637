package arch

import (
	"cmp"
	"flag"
	"fmt"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/test/must"
)

var update = flag.Bool("update", false, "write the golden file of the exported API anew")

// What importers of shard may use is promised to them: nothing of it changes unnoticed.
func TestTheExportedAPIOfShardIsTheOneInTheGoldenFile(t *testing.T) {
	golden := filepath.Join("testdata", "api.txt")
	got := exportedAPI(t, "./shard/...")
	if len(got) < 100 {
		t.Fatalf("only %d lines of exported API found: this test is out of date", len(got))
	}
	if *update {
		must.Succeed(t, os.WriteFile(golden, []byte(strings.Join(got, "\n")+"\n"), 0o644))
		return
	}
	content, err := os.ReadFile(golden)
	must.Succeed(t, err)
	want := strings.Split(strings.TrimSuffix(string(content), "\n"), "\n")
	if slices.Equal(want, got) {
		return
	}
	for _, line := range want {
		if !slices.Contains(got, line) {
			t.Errorf("gone: %s", line)
		}
	}
	for _, line := range got {
		if !slices.Contains(want, line) {
			t.Errorf("new: %s", line)
		}
	}
	t.Errorf("the exported API isn't the one in test/arch/%s; if importers are to have that, "+
		"write the file anew: go test ./test/arch -run ExportedAPI -update", golden)
}

// exportedAPI returns one line for each exported object, field and method of the packages that others may import,
// sorted.
func exportedAPI(t *testing.T, pattern string) (lines []string) {
	t.Helper()
	from := importerOf(t, token.NewFileSet(), pattern)
	for _, line := range goList(t, "-f", "{{.ImportPath}} {{.Dir}}", pattern) {
		path, dir, _ := strings.Cut(line, " ")
		_, err := os.ReadDir(dir) // so that go test keeps no result of before a change there
		must.Succeed(t, err)
		if strings.Contains(path, "/internal/") {
			continue
		}
		pkg, err := from.Import(path)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		for _, line := range exportedBy(pkg) {
			lines = append(lines, strings.TrimPrefix(path, module)+": "+line)
		}
	}
	slices.Sort(lines)
	return lines
}

// importerOf imports packages, and what they import, as the compiler left them.
func importerOf(t *testing.T, set *token.FileSet, pattern string) types.Importer {
	t.Helper()
	exports := map[string]string{}
	for _, line := range goList(t, "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}", pattern) {
		path, file, _ := strings.Cut(line, " ")
		exports[path] = file
	}
	return importer.ForCompiler(set, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
}

func exportedBy(pkg *types.Package) (lines []string) {
	in := func(other *types.Package) string {
		if other == pkg {
			return ""
		}
		return strings.TrimPrefix(other.Path(), module)
	}
	scope := pkg.Scope()
	for _, name := range scope.Names() {
		object := scope.Lookup(name)
		if !object.Exported() {
			continue
		}
		switch object := object.(type) {
		case *types.Const:
			lines = append(lines, fmt.Sprintf("%s = %s", types.ObjectString(object, in), object.Val().ExactString()))
		case *types.TypeName:
			lines = append(lines, typeLines(object, in)...)
		default:
			lines = append(lines, types.ObjectString(object, in))
		}
	}
	return lines
}

func typeLines(name *types.TypeName, in types.Qualifier) (lines []string) {
	named, ok := name.Type().(*types.Named)
	if name.IsAlias() || !ok {
		return []string{types.ObjectString(name, in)}
	}
	kind := ""
	switch under := named.Underlying().(type) {
	case *types.Struct:
		kind = "struct"
		for field := range under.Fields() {
			if field.Exported() {
				embedded := map[bool]string{true: " (embedded)"}[field.Embedded()]
				lines = append(lines, fmt.Sprintf("field %s.%s %s%s", name.Name(), field.Name(),
					types.TypeString(field.Type(), in), embedded))
			}
		}
	case *types.Interface:
		kind = "interface"
		for method := range under.Methods() { // one that isn't exported keeps others from implementing it, so it counts
			lines = append(lines, fmt.Sprintf("method %s.%s%s", name.Name(), method.Name(), signature(method, in)))
		}
	}
	for method := range named.Methods() {
		if method.Exported() {
			receiver := types.TypeString(method.Signature().Recv().Type(), in)
			lines = append(lines, fmt.Sprintf("method (%s) %s%s", receiver, method.Name(), signature(method, in)))
		}
	}
	return append(lines, fmt.Sprintf("type %s %s", name.Name(), cmp.Or(kind, types.TypeString(named.Underlying(), in))))
}

func signature(f *types.Func, in types.Qualifier) string {
	return strings.TrimPrefix(types.TypeString(f.Signature(), in), "func")
}
