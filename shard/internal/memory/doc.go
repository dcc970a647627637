// Package memory has what fills a process's memory wait its turn while the process is short of it.
//
// A replica's memory is mostly its caches. It can't choose how large they are, only how many it fills at a time: a list
// is held several times over while it is taken in, and garbage is left behind. So while memory is short, one shard's
// caches are filled at a time. Nobody is kept out for good: a shard that nobody serves is worse than a garbage
// collector that works hard, and a warm-up that takes too long is given back by the protocol's own deadline. Reconciles
// go on as ever: what they need is bounded by the number of workers.
package memory
