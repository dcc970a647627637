// Package inspect reads a fleet from outside, for tools and pages. It writes nothing, and nothing in it takes part in
// the fleet.
//
// [Read] gets the records from a client or a cache. [ReadLease] and [ReadShard] parse one of them. Package plan
// computes what the coordinator would do with them.
package inspect
