package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// lacks returns an error that names what suites need and this machine doesn't have. It is asked before the first suite,
// which may build for half an hour.
func lacks(ctx context.Context, phases [][]suite) error {
	var missing []error
	if err := exec.CommandContext(ctx, "git", "rev-parse", "--is-inside-work-tree").Run(); err != nil {
		missing = append(missing, fmt.Errorf("git, and a clone made by it: some tests read which files it knows, and the "+
			"version before (git rev-parse: %w)", err))
	}
	cc, err := exec.CommandContext(ctx, "go", "env", "CC").Output()
	if name := strings.TrimSpace(string(cc)); err == nil && !installed(strings.Fields(name)...) {
		missing = append(missing, fmt.Errorf("the C compiler %q, for the race detector: install gcc, or set CC", name))
	}
	browses := slices.ContainsFunc(slices.Concat(phases...), func(s suite) bool { return s.name == "browser" })
	if browses && !installed(os.Getenv("CHROMIUM"), "chromium", "chromium-browser", "google-chrome") &&
		os.Getuid() != 0 && exec.CommandContext(ctx, "sudo", "-n", "true").Run() != nil {
		missing = append(missing, errors.New("Chromium, and this user can't install it: install it, or name a browser like "+
			"it in CHROMIUM"))
	}
	if len(missing) == 0 {
		return nil
	}
	return fmt.Errorf("the tests need what this machine doesn't have:\n%w", errors.Join(missing...))
}

// installed reports whether one of these programs can be found.
func installed(programs ...string) bool {
	return slices.ContainsFunc(programs, func(name string) bool {
		_, err := exec.LookPath(name)
		return name != "" && err == nil
	})
}
