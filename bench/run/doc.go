// Package run carries out a scenario: it starts control planes and replicas as processes on this machine, gives them
// the load, records, and makes the report.
//
// What is compared runs side by side, each fleet on control planes of its own, and gets its load in turns: in the
// order A B B A, so that no fleet suffers more when the machine becomes slower over time. While one has its turn the
// others are idle. The fleets of a sweep run one after the other.
package run
