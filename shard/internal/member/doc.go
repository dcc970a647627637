// Package member reads and writes the Leases of the home cluster: one per incarnation, and the lead record. Package
// shard is its caller: it carries out what package driver requests, and translates what it watches. The package decides
// nothing; package ownership says what the records mean and when they are written. Like its sibling record it imports
// no other package that does I/O.
package member
