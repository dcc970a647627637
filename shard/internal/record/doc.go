// Package record reads and writes the Shard records of the home cluster, by compare-and-swap only. It decides nothing;
// see package ownership for what the records mean and when they are written.
package record
