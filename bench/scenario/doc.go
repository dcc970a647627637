// Package scenario reads what is to be measured: YAML files that say which replicas run on which clusters, what load
// comes when, what happens meanwhile, what it is compared with, and what must hold of the figures.
//
//	s, err := scenario.Read("at-burst", []string{"size=small", "fleet.replicas=5"})
//
// A file is decoded strictly: a field that doesn't exist, or a value that can't be, is refused with the field named.
// "size" picks one of the file's profiles, which set fields by their dotted path before the command line's settings do.
// "replicas" alone is short for "fleet.replicas", and so for every field of fleet and load that only one of them has.
//
// # Considerations
//
// The threshold of a figure belongs to a size: figures of a small run say that the harness works, those of a full
// one are the ones to publish.
package scenario
