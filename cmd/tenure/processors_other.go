//go:build !unix

package main

import "context"

// spareProcessors does nothing, since the CPU time of the process isn't known here.
func spareProcessors(context.Context) {}
