// Command gen prints docs/reference.md: the API types by their CustomResourceDefinitions, and the flags of tenure by
// its own help. config/generate.sh runs it, and its --check fails when the page isn't what this prints.
//
// What it doesn't know, it refuses: a field or a flag without a description, a flag in no group, a keyword of a schema
// that no table shows.
package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/tenure-dev/tenure/config"
)

const head = `# Reference

<!-- Written by docs/gen: run make generate. -->

The [API](#the-api) is that of the CustomResourceDefinitions in [config/crd](../config/crd). The
[commands](#the-commands) are those of the program itself; [install.md](install.md) and [operate.md](operate.md) say how to
use them.
`

func main() {
	page := bytes.NewBufferString(head)
	if err := write(page); err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
	_, _ = page.WriteTo(os.Stdout) // who reads it is told by what is missing
}

func write(page io.Writer) error {
	definitions, err := config.Render("crd")
	if err != nil {
		return err
	}
	fmt.Fprint(page, "\n## The API\n\nBold fields are required. What a status says is written by the replicas only.\n")
	for _, d := range definitions {
		if err := writeKind(page, d.Object); err != nil {
			return fmt.Errorf("%s: %w", d.GetName(), err)
		}
	}
	folder, err := os.MkdirTemp("", "tenure-reference")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	program := filepath.Join(folder, "tenure")
	if out, err := exec.Command("go", "build", "-o", program,
		"github.com/tenure-dev/tenure/cmd/tenure").CombinedOutput(); err != nil {
		return fmt.Errorf("building tenure: %w\n%s", err, out)
	}
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	return writeCommands(page, host, func(command ...string) (string, error) {
		help := exec.Command(program, append(command, "--help")...)
		help.Env = []string{} // no flag has its default from the environment
		out, err := help.Output()
		return string(out), err
	})
}
