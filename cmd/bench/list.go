package main

import (
	"errors"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/tenure-dev/tenure/bench/scenario"
)

func runList(args []string, stdout, _ io.Writer) error {
	if len(args) > 0 {
		return errors.New("list takes no arguments")
	}
	w := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
	for _, name := range scenario.Names() {
		s, err := scenario.Read(name, nil)
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "%s\t%s\n", name, s.Summary)
	}
	return w.Flush()
}
