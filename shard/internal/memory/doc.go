// Package memory makes shards take turns at filling their caches while the process is short of memory.
//
// A replica's memory is mostly its caches. It can't choose how large they are, only how many it fills at a time.
// While a list is taken in, it is in memory several times over, and leaves garbage behind. So while memory is short,
// one shard's caches are filled at a time. No shard is kept out for good: an unserved shard is worse than a garbage
// collector that works hard, and a warm-up that takes too long is released by the protocol's own deadline.
// Reconciles go on as ever: what they need is bounded by the number of workers.
package memory
