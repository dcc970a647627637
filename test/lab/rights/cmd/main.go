// Command cmd judges the rights that suites have used (see package rights): go run ./test/lab/rights/cmd FOLDER
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/tenure-dev/tenure/test/lab"
	"github.com/tenure-dev/tenure/test/lab/rights"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("name the folder that %s named", rights.Variable)
	}
	root, err := lab.Root()
	if err != nil {
		return err
	}
	granted, err := rights.Granted(filepath.Join(root, "config"))
	if err != nil {
		return err
	}
	use, err := rights.Left(args[0])
	if err != nil {
		return err
	}
	return rights.Judge(os.Stdout, granted, use)
}
