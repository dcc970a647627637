// Package cas classifies the API server's answers to compare-and-swap writes: committed, rejected or unknown, and why.
// It also parses the versions and epoch floors of records. The packages that write the home cluster's records, and
// package shard, use it.
package cas
