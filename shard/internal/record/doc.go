// Package record reads and writes the Shard records and layouts of the home cluster, by compare-and-swap only. Package
// shard is its caller: it carries out what package driver requests, and translates what it watches. The package decides
// nothing; package ownership says what the records mean and when they are written. Like its sibling member it imports
// no other package that does I/O.
package record
