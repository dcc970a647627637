// Package inspect reads a fleet from outside, for tools and pages. It writes nothing, and nothing in it takes part in
// the fleet.
//
// [Read] takes the records from a client or a cache; [ReadLease] and [ReadShard] say what one of them means. What the
// coordinator would do with them is the question of package plan.
package inspect
