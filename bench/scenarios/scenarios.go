// Package scenarios holds the scenario files that come with the bench.
package scenarios

import "embed"

// Files are the scenarios, one YAML file each.
//
//go:embed *.yaml
var Files embed.FS
