//go:build lab

package main

import "github.com/tenure-dev/tenure/test/hooks"

// labHooks of this binary are real: it was built for a laboratory.
type labHooks = hooks.Hooks
