//go:build !unix

package main

import "context"

// spareProcessors does nothing: what the process uses isn't known here.
func spareProcessors(context.Context) {}
