package lab

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// BinariesVariable names the folder that holds the programs of this repository, built from the source that is being
// tested. The gate sets it, so that each is built once for all suites.
const BinariesVariable = "LAB_BINARIES"

// Hooked is cmd/tenure, built with the hooks of benchmarks and the faults of gates.
const Hooked = "tenure-lab"

// Before is cmd/tenure of the newest commit that speaks the protocol's version before this one, never with the race
// detector.
const Before = "tenure-before"

// Build returns the path of a program below cmd, of Hooked or of Before, with the race detector or without. Where
// BinariesVariable is set it is taken from there; else it is built into dir.
func Build(ctx context.Context, dir, program string, race bool) (string, error) {
	name, args := program, []string{"build"}
	if race && program != Before {
		name, args = program+"-race", append(args, "-race")
	}
	source := "./cmd/" + program
	if program == Hooked {
		source, args = "./cmd/tenure", append(args, "-tags", "lab")
	}
	if built := os.Getenv(BinariesVariable); built != "" {
		path := filepath.Join(built, name)
		if _, err := os.Stat(path); err != nil {
			return "", fmt.Errorf("%s=%s: %w (unset it, and each suite builds its own)", BinariesVariable, built, err)
		}
		return path, nil
	}
	root, err := Root()
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, name)
	build := exec.CommandContext(ctx, "go", append(args, "-o", path, source)...)
	if program == Before {
		build = exec.CommandContext(ctx, "make", "before", "BIN="+dir)
	}
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building %s: %w\n%s", program, err, out)
	}
	return path, nil
}
