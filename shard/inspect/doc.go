// Package inspect reads a fleet from outside, for tools and pages. It sends no write, and nothing in it takes part in
// the fleet.
//
// [Read] gets the records from a client or a cache. [ReadLease] and [ReadShard] parse one of them. [EncodeViews] is the
// other half of what ReadLease parses: replicas write it into their Leases. Package plan computes what the coordinator
// would do with the records.
package inspect
