// Package engage makes one shard look like a whole cluster to a controller.
//
// [Open] builds a [Cluster] for a shard: the real cluster's connection pool and REST mapping, a cache that holds the
// shard's objects and nothing else, and a client that can write only while the shard is held. A multicluster-runtime
// controller that is given it as "a cluster" shards by object without knowing it.
//
// # The gate
//
// Every shard has one [Gate], and everything that the shard does goes through it: reconciles begin and end there, and
// every mutating request passes it on its way to the socket. Layers, from the outside in:
//
//  1. [Gate.Run]: no key starts unless the shard is open, and one that doesn't end with its tenure is abandoned.
//  2. the transport: a mutating request of a shard that isn't open is refused before it is sent ([ErrFenced]); all
//     requests carry shard, epoch and incarnation in their User-Agent, so that the API server's audit log can tell
//     tenures apart.
//  3. the client: updates and patches carry a resourceVersion, deletes and evictions carry UID and resourceVersion,
//     created objects have names and the owner's slot label, and kinds that offer a status epoch get it stamped. A
//     write that was on the wire when its tenure ended conflicts at the server.
//
// # What a shard's cache holds
//
// Primary kinds are filtered by the hash of their own UID, by the API server where it knows KEP-5866
// (shardSelector). Owned kinds are filtered by the slot label that the client stamped on them. Either way each
// object is checked again on arrival: a server that ignores the selector costs bandwidth, never correctness;
// [Traffic.ServerSide] reports whether it filters. Kinds that were not declared are read live. A shard that is a
// whole cluster has informers of them, too. Where clusters are divided, it isn't known which of their objects belong
// to a shard, so their informers and indexes are refused.
//
// # How a cluster answers
//
// A real cluster has one [Breaker], for all requests of its shards but lists and watches: those hold no worker, and
// may be served while nothing else is. It is open while the cluster is silent, and while it refuses everything (429,
// 401, 502 to 504). Keys are put off meanwhile instead of backing off one by one, for 5 s at most or as long as
// Retry-After says. Then one of them is let through on trial, and the next one if that sent no request. So work on
// the backlog of a cluster that recovers begins soon, however long it was away.
//
// Answers of 403 and 500 may be about single objects. While a cluster answers nothing but those, the keys that were
// refused are put off likewise, and others aren't. [Breaker.State] also reports clusters that refuse some requests
// or answer late. Their keys aren't put off: such a cluster holds no more workers than its share. A webhook may take
// half a minute to admit a write. So before a write is given up, the cluster is asked whether it answers anything
// else.
package engage
