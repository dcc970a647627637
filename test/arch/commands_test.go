package arch

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	fenced    = regexp.MustCompile("(?s)```(?:sh)?\n(.*?)```")
	inFence   = regexp.MustCompile(`(?m)^(?:\$ )?(tenure .+)$`)
	inline    = regexp.MustCompile("`(tenure [^`]+)`")
	usageLine = regexp.MustCompile(`(?m)^Usage:\n  (tenure.*)$`)
	flagOf    = regexp.MustCompile("`(--[a-z][a-z-]+)[^`]*`")
	argument  = regexp.MustCompile(`(?m)^\s*(?:- |value: )(--[a-z][a-z-]+\S*)$`)
)

// program is the tenure binary built from the tree, with the help texts that it has printed so far.
type program struct {
	path string
	said map[string]string
}

func build(t *testing.T) program {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tenure")
	if out, err := exec.Command("go", "build", "-o", path, module+"cmd/tenure").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if _, err := os.ReadDir("../../cmd/tenure"); err != nil { // so that go test keeps no result of before a change there
		t.Fatal(err)
	}
	return program{path, map[string]string{}}
}

// help makes the program parse a command line and returns its help. It runs nothing, because --help is handled
// first.
func (p program) help(words []string) (string, error) {
	line := strings.Join(words, " ")
	if out, ok := p.said[line]; ok {
		return out, nil
	}
	help := exec.Command(p.path, append(slices.Clone(words[1:]), "--help")...)
	help.Env = []string{}
	out, err := help.CombinedOutput()
	if err != nil {
		return "", errors.New(strings.TrimSpace(string(out)))
	}
	p.said[line] = string(out)
	return string(out), nil
}

// check returns what is wrong with a command line, nil if nothing. If the line isn't whole it only names the
// command, and its arguments may be missing.
func (p program) check(words []string, whole bool) error {
	out, err := p.help(words)
	if err != nil {
		return err
	}
	usage := usageLine.FindStringSubmatch(out)
	if usage == nil {
		return fmt.Errorf("its help says nothing of its usage: %s", out)
	}
	// tenure cluster add NAME [flags]: what precedes the first flag is the command, and then its arguments.
	path, arguments := strings.Fields(usage[1]), 0
	for i, word := range path {
		if strings.ContainsAny(word, "[ABCDEFGHIJKLMNOPQRSTUVWXYZ") {
			arguments = len(slices.DeleteFunc(slices.Clone(path[i:]), func(w string) bool { return w[0] == '[' }))
			path = path[:i]
			break
		}
	}
	given := words
	if i := slices.IndexFunc(words, func(w string) bool { return w[0] == '-' }); i >= 0 {
		given = words[:i]
	}
	if len(given) < len(path) || !slices.Equal(given[:len(path)], path) {
		return fmt.Errorf("understood as %q", strings.Join(path, " "))
	}
	if n := len(given) - len(path); n != arguments && (whole || n != 0) {
		return fmt.Errorf("%d arguments, want %d: %s", n, arguments, usage[1])
	}
	return nil
}

// commandLine returns the words of a line up to a comment or a redirection. Placeholders of flags are left out, and
// one of a number is replaced by an example.
func commandLine(line string) (words []string) {
	for _, word := range strings.Fields(line) {
		switch word {
		case "#", ">", "|", "&&", ";":
			return words
		case "[flags]", "…":
			continue
		case "N":
			word = "5"
		}
		words = append(words, word)
	}
	return words
}

func TestPagesAndManifestsKeepToTheProgram(t *testing.T) {
	tenure := build(t)
	t.Run("commands on pages", func(t *testing.T) { commandsOnPages(t, tenure) })
	t.Run("what is no command", func(t *testing.T) { noCommands(t, tenure) })
	t.Run("flags on pages and in manifests", func(t *testing.T) { flagsOnPages(t, tenure) })
}

func commandsOnPages(t *testing.T, tenure program) {
	seen := map[string]bool{}
	for page, text := range pages(t, "../..") {
		check := func(line string, whole bool) {
			words := commandLine(line)
			if len(words) == 1 {
				return
			}
			seen[strings.Join(words, " ")] = true
			if err := tenure.check(words, whole); err != nil {
				t.Errorf("%s says %s: %v", page, line, err)
			}
		}
		for _, block := range fenced.FindAllStringSubmatch(text, -1) {
			for _, m := range inFence.FindAllStringSubmatch(block[1], -1) {
				check(m[1], true)
			}
		}
		for _, m := range inline.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
			check(m[1], false)
		}
	}
	t.Logf("%d commands", len(seen))
	if len(seen) < 30 {
		t.Errorf("%d commands were found: are the pages where they should be?", len(seen))
	}
}

// noCommands checks that mistakes in command lines are found.
func noCommands(t *testing.T, tenure program) {
	for line, right := range map[string]bool{
		"tenure status": true, "tenure why at/x -n y": true, "tenure cluster add west --role ats,deployments --wait 2m": true,
		"tenure --lease-duration 5s": true, "tenure plan --replicas N  # what would move": true,
		"tenure statsu": false, "tenure status --no-such-flag": false, "tenure why": false, "tenure why at/x at/y": false,
		"tenure cluster ad west": false, "tenure cluster add west --wait soon": false,
		"tenure cluster add west --replicas 5": false,
	} {
		if err := tenure.check(commandLine(line), true); (err == nil) != right {
			t.Errorf("%s: %v", line, err)
		}
	}
}

// flagsOnPages checks that the flags that pages for users name exist, and that a replica takes those that manifests
// pass to it.
func flagsOnPages(t *testing.T, tenure program) {
	reference, err := os.ReadFile("../../docs/reference.md") // which config/generate.sh compares with the program
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for page, text := range pages(t, "../..") {
		if dir := filepath.Base(filepath.Dir(page)); dir != "docs" && filepath.Base(page) != "RUNBOOK.md" &&
			filepath.Base(page) != "SECURITY.md" {
			continue
		}
		for _, m := range flagOf.FindAllStringSubmatch(text, -1) {
			found++
			known := regexp.MustCompile("`" + m[1] + "[ `]")
			if !known.Match(reference) {
				t.Errorf("%s names %s: no command of tenure has it", page, m[1])
			}
		}
	}
	err = filepath.WalkDir("../../config", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".yaml" {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range argument.FindAllStringSubmatch(string(text), -1) {
			found++
			if err := tenure.check([]string{"tenure", m[1]}, true); err != nil {
				t.Errorf("%s passes %s: %v", path, m[1], err)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if found < 40 {
		t.Errorf("%d flags were found: are pages and manifests where they should be?", found)
	}
}
