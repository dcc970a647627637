// Package replication keeps copies of Deployments in other clusters: the source says where, and each copy then lives
// there as any Deployment does.
//
// It is a plain multicluster-runtime reconciler. It knows nothing of shards, tenures or epochs; what sharding needs (the
// slot label on copies, the fence) is added by the clients it is given.
//
//	r, err := replication.NewReconciler(replication.Config{Clusters: manager, Targets: targets, Clock: clock.RealClock{}})
//	...
//	err = replication.SetupUnsharded(manager, r, "home", changed, controller.TypedOptions[mcreconcile.Request]{
//		RateLimiter: replication.NewRateLimiter(),
//	})
//
// A sharded program feeds it itself: events of sources under their own key, events of copies under that of [SourceOf],
// and all sources whenever a target comes, goes, or changes between usable and not. The cluster of a request is the
// source's ("home", or "home/01" for a shard of it); any other cluster is asked for by its plain name.
//
// # What the owner of a Deployment writes
//
//	metadata:
//	  labels:
//	    tenure.dev/replicate: "true"
//	  annotations:
//	    tenure.dev/clusters: "*"             # or names: west,east. The source's own cluster is never a target.
//	    tenure.dev/replicas: divide          # default: duplicate, every copy has the replicas of the source
//	    tenure.dev/total: "10"               # with divide: what is split
//	    tenure.dev/weights: west=3,east=1    # with divide: default 1 each
//	    tenure.dev/overrides: |              # JSON: by cluster; replicas not with divide
//	      {"west": {"replicas": 5, "images": {"container": "image"}}}
//
// Annotations that make no sense are shown in the condition and an event, with name and value; until they are
// corrected nothing else is written anywhere, and existing copies stay as they are. A name that no cluster has (yet) is
// no error: it is a target that is away. One annotation names at most 500 clusters.
//
// # What the owner of a namespace in a target writes
//
//	metadata:
//	  labels:
//	    tenure.dev/replication-target: "true"   # or unrestricted
//
// Whoever can have a Deployment copied runs Pods, so a namespace of a target has to be opened by somebody who may label
// it. Without the label nothing is created or changed in it; the condition says so, and how to open it. With "true", Pods
// have to keep to the Pod Security Standard "baseline" (no namespaces, files or ports of the host, nothing privileged, no
// unusual capabilities or sysctls, ...) as the API server's own admission checks it, and to the namespace's default
// service account. With "unrestricted", they needn't; what the target's own admission and quotas say holds in any case.
// What is judged is the configuration to be applied, overrides included.
//
// A label is looked for before a write, and what was seen is believed for 5 s. A namespace that keeps copies out is looked
// at again within a minute. When the label is taken off, copies stay as they are, drift and all, and the condition says
// so once they differ from what is wanted; they are deleted when they aren't wanted any more, for that they are ours is
// written on them.
//
// Nothing is copied from or to kube-* and the namespaces of [Config.ForbiddenNamespaces], whatever their labels.
// With [Config.CreateNamespaces], a namespace that is missing is made: with the label "true" and the Pod Security labels of
// the source's, if the Pods would be let in then. A namespace is never changed or deleted.
//
// Who may have Deployments copied at all is for the source's cluster to say: config/replication/source has a
// ValidatingAdmissionPolicy that asks for a right of its own.
//
// # Parts
//
// [ParseWish], [Divide], the record's steps and [DecideCopy] are pure: what is asked for, how a total is split, what must be
// remembered, and what one copy needs next. The [Reconciler] gathers and acts, on several targets at a time, each
// bounded by a timeout. A target that doesn't answer is left out for a while by all sources.
//
// # Copies
//
// A copy has the source's namespace and name, its spec, and its labels and annotations but for those by which tools know
// what they manage: Tenure, kubectl, the Deployment controller, Argo CD, Flux, Helm, Rancher and some others. It is written
// by server-side apply by the field manager [FieldManager], so what others add (sidecars, annotations) stays.
//
// Nothing is written when nothing has changed: what is wanted is compared, field by field as server-side apply would,
// with the copy in the cache. A digest of what was applied is an annotation of the copy, hence one of the fields compared;
// so a field that the source no longer has is noticed as well.
//
// Every write names what it was decided on. An update carries UID and resourceVersion; a create carries a resourceVersion
// that no object has, with which the API server creates what is missing and refuses what exists. So a copy is created once,
// and a Deployment that isn't ours is never taken over, whatever the cache showed: it is looked at live, and the
// annotation [AnnotationSource] says whose it is, or the managed fields where somebody removed that. Before the first
// write to any target, a reconcile makes sure that the source is what the cache shows, by a compare-and-swap on it or by
// one live read: the cache of a new holder may be older than the last write of the one before.
//
// # Replicas that belong to somebody else
//
// Where spec.replicas of a copy was written by one of [Config].Scalers (the controller manager, as which a
// HorizontalPodAutoscaler writes) or was applied, server-side, by anybody else, it is left out from then on, and the
// figure is theirs. Written in any other way (kubectl scale, kubectl edit) it is drift and put back. To take it back from
// an autoscaler that is gone: kubectl scale the copy.
//
// # Somebody who doesn't give in
//
// The first three repairs of the same fields are made at once. If they don't last, further ones wait a second, two, four,
// up to five minutes, and condition and event say which fields are contested. An admission policy that changes what is
// being applied is recognised by the reply and costs one write.
//
// # What is remembered where
//
// On the source: a finalizer; the clusters that may have a copy ([AnnotationCopies], written before the first request
// that could make one); and the targets whose share has moved away ([AnnotationGivenUp], so that a new holder doesn't
// start their grace anew). Any process can go on from there. In memory: only what spares requests. A target that was restored from
// a backup, where versions go back, is brought to what is wanted like any that was edited by hand.
//
// A cluster leaves the list when its API server has said that it has no copy; one that can't be read stays, and with it
// the finalizer, whether the source was deleted, lost its label, or just this target. Where a cluster is gone for good,
// take its name off the list: kubectl annotate --overwrite deployment/x tenure.dev/copies=west. If the list is removed
// altogether, every known cluster is asked.
//
// # The writes in the life of a source
//
//	W1  source: finalizer and list of clusters, one patch, before any copy
//	W2  each target: create the copy (and its namespace, where that is missing and may be made)
//	W3  source/status: the condition, when it changes; mere figures at most once a second
//	W4  each target that has drifted or whose source has changed: one apply
//	W5  each target that has to go: one delete; then the source: list shortened, or finalizer removed
//
// Whichever of them is the last thing a process does, the next one goes on to the same end.
//
// # The condition
//
// Replicated is True when every target has the wanted configuration rolled out and available. The message has the figures
// of all clusters; the reason is that of the worst. It is applied by our field manager, so conditions of the
// Deployment controller stay. A Deployment's condition has no generation, hence the message says which one it speaks of:
// kubectl wait right after an edit may see the condition of before.
//
// An event is told when status or reason change, so one for all clusters and for whatever replicas find the same. What
// comes from elsewhere (a server's words, names, values) is cleaned and cut: a message has at most 1024 bytes, and names
// the clusters that are worst where it can't name all.
//
// # What is watched
//
// Copies whole, not only metadata and status: drift is found by comparing the spec, and a drifted label or annotation
// changes no generation that would tell to read the rest. [TrimCopy], as the transform of the cache, drops what nothing
// is decided by, most of the managed fields above all: more than half of a copy.
//
// # How long a drift lasts
//
// An event, one live read of the source, one apply: some 15 ms where an API server answers within a few. The apply names
// the version it was decided on. The Deployment controller, which sees the same drift, writes status meanwhile, and each
// of its writes in between costs a conflict, a read and another apply: that is what the longest repairs consist of. An
// apply that names only the UID wouldn't conflict, but one that was on the wire when its tenure ended could then
// undo what the next holder has written. Where etcd's disk stalls, all of this waits for it.
//
// # Considerations
//
//   - The source is a Deployment like any other: where a Deployment controller runs in its cluster, it has Pods there, too.
//   - divide gives what is left over after rounding to the largest remainders. A change of total or weights may move a
//     replica between clusters that weren't touched.
//   - A copy of a source that vanished without its finalizer (an old backup restored, say) is left alone. Only a copy
//     that came into being after this very process let its source go, by a request that was under way, is deleted.
//   - A target whose Secret was removed is away at once; its share moves when this process has run for as long as the grace.
package replication
