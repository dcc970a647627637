// Package shard makes a multicluster-runtime program share its work among replicas: per object, across many clusters,
// with at most one replica for a key at any time.
//
// # Setup
//
// Take a manager from [NewManager] instead of mcmanager.New, name the kinds, and give the controller its sources and
// its guard from that manager:
//
//	opts := manager.Options{Scheme: scheme, Cache: cache.Options{ // of home, of which the Role allows one namespace
//		DefaultNamespaces: map[string]cache.Config{shard.DefaultNamespace: {}},
//	}}
//	mgr, err := shard.NewManager(home, provider, opts, shard.Config{
//		Replica: os.Getenv("POD_NAME"),
//		Kinds:   []shard.Kind{shard.Primary(&v1alpha1.At{}), shard.Owned(&corev1.Pod{})},
//	})
//	err = mcbuilder.ControllerManagedBy(mgr).Named("at").
//		WatchesRawSource(mgr.For(&v1alpha1.At{}, nil)).
//		WatchesRawSource(mgr.Owns(&corev1.Pod{}, &v1alpha1.At{})).
//		Complete(mgr.Guard(reconciler))
//
// The reconciler stays as it was: it gets its cluster from the manager by the request's ClusterName, reads through that
// cluster's client and writes through it. The home cluster needs the CRD of Shard (config/crd). The clusters that the
// provider makes need the kinds in their scheme.
//
// # What a reconciler may rely on
//
//   - No other replica reconciles the key meanwhile (I1). When this can't be kept up any longer, the reconcile's
//     context ends and its writes fail, with [ErrFenced] or the context's error. Pass that context to every call: by
//     it alone the fence knows a reconcile that doesn't return. Five seconds after its context has ended, the key is
//     worked on without waiting for it any longer.
//   - An object that is made again under its name has another UID, and so mostly another shard and key: the reconcile
//     that finds the old one gone may run beside that of the new one, or after it. So clean up by a finalizer, or ask
//     GetAPIReader first whether the name is taken again.
//   - Its writes carry preconditions, so a write that was on the wire when its tenure ended does no harm. Server-side
//     apply has none but field ownership, which old and new holder share: where a late one would do harm, set the
//     resourceVersion of what is applied. A cache may be older than the last write of the previous holder. So what must
//     not happen twice has to be guarded by a precondition or a live read, as in any controller that was restarted.
//   - GetCluster returns clusters whose clients a shard fences. It takes the name of a shard that is warm or held
//     here or, inside a guarded reconcile, the name of a cluster that [Copies] reach. Outside of one, a cluster's
//     name fails; [Manager.Unfenced] returns that cluster without a fence. mcmanager.LocalCluster and GetLocalManager
//     return the manager's own cluster, without a fence, too. Ask for the cluster in each reconcile: the caches of one
//     that was kept stand still once the shard has left.
//   - Every key of a shard is enqueued when the shard becomes active, behind live events (I4). An object that is
//     deleted while its shard moves isn't among them, as with one that is deleted while a controller restarts: where
//     its end matters, hold it by a finalizer.
//   - Reads of a declared kind show the shard's own part, in the form in which it is declared: typed, unstructured or
//     metadata. Other forms are read live, and show the whole cluster, as the cluster's GetAPIReader does.
//   - A label says to which shard an object of an owned kind belongs. Create and Apply set it, by the object's
//     controller reference. Objects without it, such as those from before the program was sharded, aren't seen. If a
//     Create fails since such an object is there, with the same controller, that object gets the label.
//   - Predicates, handlers and map functions are called from several goroutines: by the watches of all shards, and for
//     all objects of a shard when it opens. While one runs, no other controller hears of its kind in that shard. If the
//     controller keeps mcbuilder's For and Owns, shards that open meanwhile wait for it, in all clusters. So read
//     nothing live in them.
//   - Other kinds are read live. Where clusters are divided, their informers and indexes are refused: they would show
//     an arbitrary part of the objects.
//   - A write that no precondition can protect fails with [ErrUnfenceable]: generateName, DeleteAllOf, JSON patches,
//     a delete or an eviction without a UID, an update or merge patch without a resourceVersion. So do exec, attach
//     and port-forward: make these from the GetConfig of [Manager.Unfenced].
//   - A request that the API server answers with 429 (too many requests) fails at once; client-go would wait in the
//     worker for Retry-After. Return the error: the key comes back when the API server allows it.
//
// # Considerations
//
// In calm one replica makes at most five writes per [Config].LeaseDuration, whatever it holds: four renewals and one
// report of its shards' sizes and loads. A shard costs one watch per kind at its holder. A move costs at most four
// writes, whatever the shard holds (I5).
//
// A program that keeps mcbuilder's For and Owns works too, with [Manager.Guard], if its kinds are declared and it adds
// its controllers before Start: one that comes later is engaged with a shard only when that opens next. It pays for
// multicluster-runtime's own way of engaging, which doesn't tell backfill from live events and leaves goroutines behind
// each time. Nothing refuses an Owns of a primary kind there, which [Manager.Owns] does.
//
// The protocol is in shard/internal/ownership and shard/internal/driver. DESIGN.md in this folder has the reasons, and
// lists the invariants (I1 and so on).
package shard
