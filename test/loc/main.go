// Command loc counts the lines of code of the product and of what gives evidence of it. It fails when a file isn't
// gofmt-ed or a line is wider than 120 characters.
//
//	go run ./test/loc                   counts the files of the working tree
//	go run ./test/loc -base COMMIT      beside those of a commit
//
// Comments, blank lines and generated files don't count. A line that is too wide counts as the lines it would fill, so
// that joining lines saves nothing.
package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"go/format"
	"go/scanner"
	"go/token"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
	"unicode/utf8"
)

const width = 120

// The three kinds of code.
const (
	product   = "product"
	unitTests = "unit tests beside the product"
	machinery = "machinery: bench, labs, demo, chaos, simulator, integration"
)

// evidence are the folders whose code exists to find out whether the product is right.
var evidence = []string{"bench/", "test/", "cmd/demo/", "cmd/bench/", "shard/shardtest/", "shard/internal/shardtest/",
	"pkg/localplane/", "pkg/localfleet/", "pkg/localjaeger/", "config/monitoring/", "docs/gen/"}

func kind(name string) string {
	switch {
	case slices.ContainsFunc(evidence, func(folder string) bool { return strings.HasPrefix(name, folder) }):
		return machinery
	case strings.HasSuffix(name, "_test.go"):
		return unitTests
	}
	return product
}

// generated is Go's convention, at the start of a line before the package clause.
var generated = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)

// file is what there is to say about a file.
type file struct {
	lines int
	// wide are the numbers of the lines that are too wide, comments among them. Raw strings and markers of generators,
	// which begin with a plus, can't be broken.
	wide      []int
	formatted bool
}

func count(source []byte) file {
	starts := map[int]bool{} // lines that hold code
	raw := map[int]bool{}    // lines that hold a part of a raw string
	set := token.NewFileSet()
	var s scanner.Scanner
	s.Init(set.AddFile("", -1, len(source)), source, nil, 0)
	for {
		at, t, text := s.Scan()
		if t == token.EOF {
			break
		}
		if t == token.SEMICOLON && text == "\n" {
			continue // written by no one
		}
		for i := range strings.Count(text, "\n") + 1 {
			starts[set.Position(at).Line+i] = true
			raw[set.Position(at).Line+i] = raw[set.Position(at).Line+i] || t == token.STRING && text[0] == '`'
		}
	}
	var f file
	for i, line := range strings.Split(string(source), "\n") {
		n := utf8.RuneCountInString(line)
		if n > width && !raw[i+1] && !strings.HasPrefix(strings.TrimSpace(line), "// +") {
			f.wide = append(f.wide, i+1)
		}
		if starts[i+1] && strings.TrimSpace(line) != "" {
			f.lines += max(1, (n+width-1)/width)
		}
	}
	formatted, err := format.Source(source)
	f.formatted = err == nil && bytes.Equal(formatted, source)
	return f
}

// tally is the lines of code by kind and package.
type tally map[string]map[string]int

func (t tally) add(name string, lines int) {
	k := kind(name)
	if t[k] == nil {
		t[k] = map[string]int{}
	}
	t[k][path.Dir(name)] += lines
}

func (t tally) total(kinds ...string) (n int) {
	for _, k := range kinds {
		for _, lines := range t[k] {
			n += lines
		}
	}
	return n
}

func main() {
	base := flag.String("base", "", "`commit` to compare with")
	packages := flag.Bool("packages", false, "print every package")
	flag.Parse()
	if err := run(*base, *packages, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "loc:", err)
		os.Exit(1)
	}
}

func run(base string, packages bool, to io.Writer) error {
	now, bad, err := working()
	if err != nil {
		return err
	}
	before := tally{}
	if base != "" {
		if before, err = committed(base); err != nil {
			return err
		}
	}
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', tabwriter.AlignRight)
	row := func(name string, old, new int) {
		if base == "" {
			fmt.Fprintf(w, "%d\t  %s\n", new, name)
			return
		}
		change := "new"
		if old > 0 {
			change = fmt.Sprintf("%+.1f %%", 100*float64(new-old)/float64(old))
		}
		fmt.Fprintf(w, "%d\t%d\t%s\t  %s\n", old, new, change, name)
	}
	for _, k := range []string{product, unitTests, machinery} {
		all := maps.Clone(before[k])
		if all == nil {
			all = map[string]int{}
		}
		maps.Copy(all, now[k])
		for _, p := range slices.Sorted(maps.Keys(all)) {
			if packages {
				row(p, before[k][p], now[k][p])
			}
		}
		row(k, before.total(k), now.total(k))
	}
	row("evidence: tests and machinery", before.total(unitTests, machinery), now.total(unitTests, machinery))
	return errors.Join(w.Flush(), bad)
}

// working counts the working tree's files; bad names what isn't as it should be.
func working() (counts tally, bad, err error) {
	out, err := git("ls-files", "-co", "--exclude-standard", "--deduplicate", "*.go")
	if err != nil {
		return nil, nil, fmt.Errorf("listing the files, which takes git and a clone made by it, not an archive of the "+
			"sources: %w", err)
	}
	counts = tally{}
	var faults []error
	for _, name := range strings.Fields(string(out)) {
		source, err := os.ReadFile(name)
		if errors.Is(err, os.ErrNotExist) {
			continue // deleted, and not yet committed
		}
		if err != nil {
			return nil, nil, err
		}
		if generated.Match(source) {
			continue
		}
		f := count(source)
		counts.add(name, f.lines)
		if !f.formatted {
			faults = append(faults, fmt.Errorf("%s isn't gofmt-ed: run gofmt -w %s", name, name))
		}
		for _, line := range f.wide {
			faults = append(faults, fmt.Errorf("%s:%d is wider than %d: break it", name, line, width))
		}
	}
	if len(faults) > 0 {
		faults = append(faults, fmt.Errorf("%d findings", len(faults)))
	}
	return counts, errors.Join(faults...), nil
}

// git returns what git prints. An error has git's own words.
func git(args ...string) ([]byte, error) {
	out, err := exec.Command("git", args...).Output()
	if failed := (*exec.ExitError)(nil); errors.As(err, &failed) {
		err = fmt.Errorf("git %s: %w: %s", args[0], err, bytes.TrimSpace(failed.Stderr))
	}
	return out, err
}

// committed counts the files of a commit.
func committed(commit string) (tally, error) {
	out, err := git("archive", "--format=tar", commit)
	if err != nil {
		return nil, fmt.Errorf("reading commit %s: %w", commit, err)
	}
	counts := tally{}
	for r := tar.NewReader(bytes.NewReader(out)); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return counts, nil
		}
		if err != nil {
			return nil, fmt.Errorf("reading commit %s: %w", commit, err)
		}
		if !strings.HasSuffix(header.Name, ".go") {
			continue
		}
		source, err := io.ReadAll(r)
		if err != nil {
			return nil, fmt.Errorf("reading %s of commit %s: %w", header.Name, commit, err)
		}
		if !generated.Match(source) {
			counts.add(header.Name, count(source).lines)
		}
	}
}
