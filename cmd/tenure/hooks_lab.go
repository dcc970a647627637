//go:build lab

package main

import "github.com/tenure-dev/tenure/test/hooks"

// labHooks are the real hooks, since this binary was built with -tags lab.
type labHooks = hooks.Hooks
