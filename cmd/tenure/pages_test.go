package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tenure-dev/tenure/test/must"
)

var (
	fenced   = regexp.MustCompile("(?s)```(?:sh)?\n(.*?)```")
	inFence  = regexp.MustCompile(`(?m)^(?:\$ )?(tenure .+)$`)
	inline   = regexp.MustCompile("`(tenure [^`]+)`")
	flagOf   = regexp.MustCompile("`--([a-z][a-z-]+)[^`]*`")
	argument = regexp.MustCompile(`(?m)^\s*(?:- |value: )(--[a-z][a-z-]+\S*)$`)
)

// check returns what is wrong with a command line, nil if nothing. Only a whole line needs its arguments.
func check(line string, whole bool) error {
	root := newRoot(noEnv, runManager)
	cmd, rest, err := root.Find(commandLine(line)[1:])
	if err != nil {
		return err
	}
	cmd.InitDefaultHelpFlag() // as the program does
	if err := cmd.ParseFlags(rest); err != nil {
		return err
	}
	args := cmd.Flags().Args()
	if len(args) == 0 && !whole {
		return nil
	}
	for i := range args {
		args[i] = strings.ToLower(args[i]) // CLUSTER stands for a name, and those have no capitals
	}
	return cmd.ValidateArgs(args)
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

// linesOf returns the command lines of a page, each with whether it is whole: outside of a block it may only name the
// command.
func linesOf(page string) map[string]bool {
	lines := map[string]bool{}
	for _, m := range inline.FindAllStringSubmatch(fenced.ReplaceAllString(page, ""), -1) {
		lines[m[1]] = false
	}
	for _, block := range fenced.FindAllStringSubmatch(page, -1) {
		for _, m := range inFence.FindAllStringSubmatch(block[1], -1) {
			lines[m[1]] = true
		}
	}
	return lines
}

// Pages show commands that exist, with flags and arguments that they take. Pages for users name only flags that exist,
// and manifests pass only flags that a replica takes.
func TestPagesAndManifestsKeepToTheProgram(t *testing.T) {
	flags := map[string]bool{}
	var collect func(*cobra.Command)
	collect = func(c *cobra.Command) {
		c.Flags().VisitAll(func(f *pflag.Flag) { flags[f.Name] = true })
		for _, below := range c.Commands() {
			collect(below)
		}
	}
	collect(newRoot(noEnv, runManager))
	commands, named, passed := 0, 0, 0
	err := filepath.WalkDir("../..", func(path string, entry fs.DirEntry, err error) error {
		page, manifest := filepath.Ext(path) == ".md", strings.HasPrefix(path, "../../config/") &&
			filepath.Ext(path) == ".yaml"
		switch {
		case err != nil:
			return err
		case entry.IsDir() && slices.Contains([]string{".git", "out", "bin"}, entry.Name()):
			return filepath.SkipDir
		case !page && !manifest:
			return nil
		}
		text, err := os.ReadFile(path)
		if manifest {
			for _, m := range argument.FindAllStringSubmatch(string(text), -1) {
				passed++
				if err := check("tenure "+m[1], true); err != nil {
					t.Errorf("%s passes %s: %v", path, m[1], err)
				}
			}
			return err
		}
		for line, whole := range linesOf(string(text)) {
			commands++
			if err := check(line, whole); err != nil {
				t.Errorf("%s says %s: %v", path, line, err)
			}
		}
		if forUsers := []string{"docs", "RUNBOOK.md", "SECURITY.md"}; !slices.Contains(forUsers, entry.Name()) &&
			!slices.Contains(forUsers, filepath.Base(filepath.Dir(path))) {
			return err // the others also name flags of other programs
		}
		for _, m := range flagOf.FindAllStringSubmatch(string(text), -1) {
			named++
			if !flags[m[1]] {
				t.Errorf("%s names --%s: no command of tenure has it", path, m[1])
			}
		}
		return err
	})
	must.Succeed(t, err)
	if commands < 60 || named < 100 || passed < 5 {
		t.Errorf("%d commands, %d flags on pages and %d in manifests were found: are they where they should be?", commands,
			named, passed)
	}
}

func TestAMistakeInACommandLineIsFound(t *testing.T) {
	for line, right := range map[string]bool{
		"tenure status": true, "tenure why at/x -n y": true,
		"tenure --lease-duration 5s": true, "tenure plan --replicas N  # what would move": true,
		"tenure cluster add west --role ats,deployments --wait 2m": true,
		"tenure statsu": false, "tenure status --no-such-flag": false, "tenure why": false, "tenure why at/x at/y": false,
		"tenure cluster ad west": false, "tenure cluster add west --wait soon": false,
		"tenure cluster add west --replicas 5": false,
	} {
		if err := check(line, true); (err == nil) != right {
			t.Errorf("%s: %v", line, err)
		}
	}
}
