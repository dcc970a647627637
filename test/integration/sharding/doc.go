// Package sharding tests the whole of Tenure's sharding on real control planes: replicas as processes of the binary,
// with the rights that config/ ships, each behind fault proxies. It asserts invariants; the figures of handoffs are
// measured by test/chaos.
package sharding
