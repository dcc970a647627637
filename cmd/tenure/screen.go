package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/tenure-dev/tenure/pkg/console"
	"github.com/tenure-dev/tenure/pkg/text"
)

// screen returns the screen for a command's answer.
func screen(cmd *cobra.Command, lookup func(string) (string, bool)) *console.Screen {
	to := cmd.OutOrStdout()
	wide := columns(to)
	plain, _ := lookup("NO_COLOR")
	terminal, _ := lookup("TERM")
	return &console.Screen{To: to, Columns: wide, Colour: wide > 0 && plain == "" && terminal != "dumb"}
}

// columns returns how wide a terminal is, and 0 for what isn't one. One that doesn't say its width counts as narrow.
func columns(w io.Writer) int {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return 0
	}
	wide, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 1
	}
	return max(wide, 1)
}

// show writes an answer in the format that was asked for.
func (q *question) show(answer any, healthy bool, show func(*console.Screen) error) error {
	var err error
	if q.output == "json" {
		var encoded []byte
		if encoded, err = json.MarshalIndent(answer, "", "  "); err == nil {
			_, err = fmt.Fprintf(q.screen.To, "%s\n", text.JSON(encoded))
		}
	} else {
		err = show(q.screen)
	}
	if err == nil && !healthy {
		err = errUnhealthy
	}
	return err
}
