// Package mutants holds seeded bugs: small changes to the source of the protocol, the queue and other packages. The
// tests must catch each of them. They are data, not hooks: no production code knows of them. Command mutants builds
// each with `go test -overlay` and expects the tests to fail.
package mutants

import (
	_ "embed"
	"errors"
	"fmt"
	"strings"
)

//go:embed mutants.txt
var data string

// Mutant is one seeded bug.
type Mutant struct {
	Name   string
	Breaks string // what it breaks, in a few words
	File   string // from the module's root
	Test   string // FOLDER.TEST that caught it last, to be tried first; "" if none is known
	Old    string // must occur exactly once
	New    string
}

// All returns the seeded bugs. A mutant in mutants.txt is
//
//	== NAME
//	breaks: WHAT
//	file: PATH
//	test: FOLDER.TEST, if known
//	--- old
//	LINES
//	--- new
//	LINES
func All() ([]Mutant, error) { return read(data) }

func read(data string) ([]Mutant, error) {
	var all []Mutant
	for i, text := range strings.Split(data, "\n== ")[1:] {
		head, body, ok1 := strings.Cut(text, "\n--- old\n")
		old, replacement, ok2 := strings.Cut(body, "\n--- new\n")
		lines := strings.Split(head, "\n")
		test := ""
		if last, ok := strings.CutPrefix(lines[len(lines)-1], "test: "); ok {
			test, lines = last, lines[:len(lines)-1]
		}
		another := strings.Contains(body, "\n--- old\n") || strings.Contains(replacement, "\n--- new\n")
		if !ok1 || !ok2 || another || len(lines) != 3 {
			return nil, fmt.Errorf("reading mutant %d (%s): want a name, breaks, file, old and new, each once", i+1, lines[0])
		}
		all = append(all, Mutant{
			Name:   lines[0],
			Breaks: strings.TrimPrefix(lines[1], "breaks: "),
			File:   strings.TrimPrefix(lines[2], "file: "),
			Test:   test,
			Old:    old,
			New:    strings.TrimRight(replacement, "\n"),
		})
	}
	if len(all) == 0 {
		return nil, errors.New("reading the mutants: there are none")
	}
	return all, nil
}

// Apply returns the source of the mutant's file with the bug. It fails unless Old occurs in the source exactly once.
func (m Mutant) Apply(source string) (string, error) {
	if n := strings.Count(source, m.Old); n != 1 {
		return "", fmt.Errorf("stale mutant %q: its old snippet occurs %d times in %s, want once", m.Name, n, m.File)
	}
	return strings.Replace(source, m.Old, m.New, 1), nil
}

// Remember writes into the text of mutants.txt which test caught which mutant.
func Remember(text string, caught map[string]string) string {
	parts := strings.Split(text, "\n== ")
	for i, part := range parts[1:] {
		head, body, _ := strings.Cut(part, "\n--- old\n")
		name, _, _ := strings.Cut(head, "\n")
		if test := caught[name]; test != "" {
			head, _, _ = strings.Cut(head, "\ntest: ")
			parts[i+1] = head + "\ntest: " + test + "\n--- old\n" + body
		}
	}
	return strings.Join(parts, "\n== ")
}
