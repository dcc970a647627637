package arch

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/test/must"
)

var (
	code    = regexp.MustCompile("(?s)```.*?```|`[^`\n]*`")
	link    = regexp.MustCompile(`\]\(([^)#:]+)(#[^)]*)?\)`)
	makes   = regexp.MustCompile("(?m)(?:`|^)make ([a-z-]+)")
	target  = regexp.MustCompile(`(?m)^([a-z-]+):`)
	heading = regexp.MustCompile(`(?m)^#+ (.+)$`)
)

// anchors are those that a page's headings have on GitHub.
func anchors(text string) map[string]bool {
	all := map[string]bool{}
	drop := regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	for _, m := range heading.FindAllStringSubmatch(text, -1) {
		all["#"+strings.ReplaceAll(drop.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-")] = true
	}
	return all
}

// texts are all files with one of these endings, by their paths.
func texts(t *testing.T, root string, endings ...string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && (entry.Name() == ".git" || entry.Name() == "out" || entry.Name() == "bin") {
			return filepath.SkipDir
		}
		if slices.Contains(endings, filepath.Ext(path)) {
			text, err := os.ReadFile(path)
			all[path] = string(text)
			return err
		}
		return nil
	})
	must.Succeed(t, err)
	return all
}

func TestWhatPagesPointToIsThere(t *testing.T) {
	const root = "../.."
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	must.Succeed(t, err)
	targets := map[string]bool{}
	for _, m := range target.FindAllStringSubmatch(string(makefile), -1) {
		targets[m[1]] = true
	}
	links, commands := 0, 0
	all := texts(t, root, ".md")
	for page, text := range all {
		for _, m := range link.FindAllStringSubmatch(code.ReplaceAllString(text, ""), -1) {
			links++
			to := filepath.Join(filepath.Dir(page), m[1])
			if _, err := os.Stat(to); err != nil {
				t.Errorf("%s points to %s, which isn't there", page, m[1])
			} else if other, ok := all[to]; ok && m[2] != "" && !anchors(other)[m[2]] {
				t.Errorf("%s points to %s%s, which has no such heading", page, m[1], m[2])
			}
		}
		for _, m := range makes.FindAllStringSubmatch(text, -1) {
			commands++
			if !targets[m[1]] {
				t.Errorf("%s says make %s: the Makefile has no such target", page, m[1])
			}
		}
	}
	if links < 20 || commands < 10 {
		t.Errorf("%d links and %d commands were found: are the pages where they should be?", links, commands)
	}
}

// docs/reference.md lists what replicas export; a test beside the commands keeps it exact.
func TestEveryMetricThatIsNamedIsExported(t *testing.T) {
	all := texts(t, "../..", ".go", ".html", ".js", ".json", ".md", ".txt", ".yaml")
	exported, named := map[string]bool{}, 0
	for _, m := range regexp.MustCompile("(?m)^\\| `(tenure_[a-z_]+)` \\|").FindAllStringSubmatch(
		all["../../docs/reference.md"], -1) {
		exported[m[1]] = true
	}
	name := regexp.MustCompile(`\btenure_[a-z_]+[a-z]\b`)
	partOfHistogram := regexp.MustCompile(`_(bucket|sum|count)$`)
	for path, text := range all {
		for _, m := range name.FindAllString(text, -1) {
			named++
			if !exported[m] && !exported[partOfHistogram.ReplaceAllString(m, "")] {
				t.Errorf("%s names %s, which no replica exports", path, m)
			}
		}
	}
	if len(exported) < 40 || named < 500 {
		t.Errorf("%d metrics were found, which are named %d times: are the files where they should be?", len(exported), named)
	}
}

// The section of CONTRIBUTING.md about the layout has a table. The folders in its first cells must exist.
func TestTheFoldersOfContributingExist(t *testing.T) {
	const root = "../.."
	text, err := os.ReadFile(filepath.Join(root, "CONTRIBUTING.md"))
	must.Succeed(t, err)
	_, layout, _ := strings.Cut(string(text), "\n## Layout of the code\n")
	layout, _, _ = strings.Cut(layout, "\n## ")
	folders := 0
	for line := range strings.Lines(layout) {
		if !strings.HasPrefix(line, "| ") {
			continue
		}
		cell, _, _ := strings.Cut(line[2:], " |")
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cell, -1) {
			folders++
			if _, err := os.Stat(filepath.Join(root, m[1])); err != nil {
				t.Errorf("CONTRIBUTING.md shows %s: %v", m[1], err)
			}
		}
	}
	if folders < 20 {
		t.Errorf("%d folders were found", folders)
	}
}
