// Package replication keeps copies of Deployments in other clusters. Annotations of the source say where, and each copy
// then lives there like any other Deployment.
//
// It is a plain multicluster-runtime reconciler. It knows nothing of shards, tenures or epochs; what sharding needs
// (the slot label on copies, the fence) is added by the clients it is given.
//
//	r, err := replication.NewReconciler(replication.Config{
//		Clusters: manager, Targets: targets, Clock: clock.RealClock{},
//	})
//	...
//	err = replication.SetupUnsharded(manager, r, "home", changed, controller.TypedOptions[mcreconcile.Request]{
//		RateLimiter: replication.NewRateLimiter(),
//	})
//
// A sharded program feeds the reconciler itself: events of sources under their own key, events of copies under the key
// of [SourceOf], and all sources whenever a target comes, goes, or becomes usable or unusable. The cluster of a request
// is the source's ("home", or "home/01" for a shard of it). Any other cluster is looked up by its plain name.
//
// # What the owner of a Deployment writes
//
//	metadata:
//	  labels:
//	    tenure.dev/replicate: "true"
//	  annotations:
//	    tenure.dev/clusters: "*"             # all that keep copies, or names: west,east. Never the source's own.
//	    tenure.dev/replicas: divide          # default: duplicate, every copy has the replicas of the source
//	    tenure.dev/total: "10"               # with divide: what is split
//	    tenure.dev/weights: west=3,east=1    # with divide: default 1 each
//	    tenure.dev/overrides: |              # JSON: by cluster; replicas not with divide
//	      {"west": {"replicas": 5, "images": {"container": "image"}}}
//
// Invalid annotations are shown, with name and value, in the condition and an event. Until they are corrected nothing
// else is written anywhere, and existing copies stay as they are. A name that no cluster has (yet) is no error: it is a
// target that is away. Weights and overrides may only name clusters that tenure.dev/clusters names, unless that is *.
// One annotation names at most 500 clusters.
//
// # What the owner of a namespace in a target writes
//
//	metadata:
//	  labels:
//	    tenure.dev/replication-target: "true"   # or unrestricted
//
// A user who can have a Deployment copied can run Pods in the target. So somebody who may label a namespace of the
// target has to open it. Without the label nothing is created or changed in it; the condition says so, and how to
// open it. With "true", Pods must keep to the Pod Security Standard "baseline" (no namespaces, files or ports of
// the host, nothing privileged, no unusual capabilities or sysctls, ...) as the API server's own admission checks
// it, and use the namespace's default service account. With "unrestricted" they needn't. The target's own admission
// and quotas apply in any case. The check looks at the configuration to be applied, overrides included.
//
// The label is read before a write, and the result is used for 5 s. A namespace that isn't open is read again within a
// minute. When the label is removed, copies stay as they are, even if they drift; the condition says so once they
// differ from what is wanted. Copies that aren't wanted any more are deleted all the same, since their annotations say
// that they are ours.
//
// Nothing is copied from or to kube-* and the namespaces of [Config.ForbiddenNamespaces], whatever their labels. With
// [Config.CreateNamespaces], a missing namespace is created if the Pods would be allowed in it: with the label "true"
// and the Pod Security labels of the source's namespace. A namespace is never changed or deleted.
//
// The source's cluster decides who may have Deployments copied at all: config/replication/source has a
// ValidatingAdmissionPolicy that requires a special permission.
//
// # Parts
//
// What is asked for (wish.go), how a total is split (divide.go), what must be remembered (record.go), and what one copy
// needs next (decide.go) is decided by pure functions. The [Reconciler] gathers and acts, on several targets at a time,
// each bounded by a timeout. A target that serves nothing is left out for a while by all sources ([Targets].PutOff).
//
// # Copies
//
// A copy has the source's namespace, name and spec. It has the source's labels and annotations except those by which
// tools identify what they manage: Tenure, kubectl, the Deployment controller, Argo CD, Flux, Helm, Rancher and some
// others. It is written by server-side apply with the field manager [FieldManager], so what others add (sidecars,
// annotations) stays.
//
// Nothing is written when nothing has changed: the wanted configuration is compared with the copy in the cache, field
// by field as server-side apply would. A digest of what was applied is an annotation of the copy, and so one of the
// compared fields. Thus a field that the source no longer has is noticed as well.
//
// Every write names the version that it was decided on. An update carries UID and resourceVersion. A create carries a
// resourceVersion that no object has, with which the API server creates a missing object and refuses to change an
// existing one. So a copy is created once, and a Deployment that isn't ours is never taken over, whatever the cache
// showed: it is read live, and the annotation [AnnotationSource] says whose it is. If somebody removed or changed that,
// or the source's cluster had another name, the managed fields and the UIDs of source and cluster say it. Before the
// first write to any target, a reconcile ensures that the source is as the cache shows it, by a compare-and-swap on it
// or by one live read: the cache of a new holder may be older than the last write of the previous one.
//
// # Two fleets and one target
//
// Two fleets may call the clusters of their sources by one name, have Deployments of one name there, and copy to the
// same target. So [AnnotationSourceCluster] says which cluster a copy is from. A copy from another cluster is foreign:
// it is neither changed nor deleted, and the condition says so. A copy without the annotation is taken by the first
// fleet that comes. If the cluster of the sources is rebuilt from nothing, it is another one; somebody hands it the
// copies by removing the annotation from them.
//
// # Replicas that an autoscaler sets
//
// If spec.replicas of a copy was written by one of [Config].Scalers (by default the controller manager, as which a
// HorizontalPodAutoscaler writes, by its names in Kubernetes, k3s and MicroK8s), or was set by server-side apply by
// anybody else, it belongs to them and is no longer applied. If it was written in any other way (kubectl scale, kubectl
// edit) it is drift and is repaired. To take it back from an autoscaler that is gone, kubectl scale the copy.
//
// # Contested fields
//
// The first three repairs of the same fields, and twelve of any, are made at once. If they don't last, further ones
// wait a second, two, four, up to five minutes, and condition and event say which fields are contested. So it is with a
// copy that somebody deletes. If an admission policy changes what is applied, the reply shows that, and it costs one
// write.
//
// # What is remembered where
//
// On the source: a finalizer; the clusters that may have a copy ([AnnotationCopies], written before the first request
// that could make one); and the targets whose share has moved away ([AnnotationGivenUp], so that a new holder doesn't
// start their grace again). Any process can go on from there. In memory: only what saves requests. A target that was
// restored from a backup, where versions go back, is treated like one that was edited by hand.
//
// A cluster leaves the list when its API server has said that it has no copy. A cluster that can't be read stays on it,
// and keeps the finalizer, whether the source was deleted, lost its label, or lost just this target. If a cluster is
// gone for good, take its name off the list: kubectl annotate --overwrite deployment/x tenure.dev/copies=west.
//
// If the list is removed altogether, as by kubectl replace, every cluster that keeps copies is asked. The new list has
// a ? among its names: it may be incomplete or name too many. So has one that got a cluster added whose cache shows a
// copy. The ? goes when no copy is left to delete. Until then, a copy in a cluster that [AnnotationClusters] doesn't
// name is only deleted if every cluster that it names can be read: the copy may be wanted there, under another name of
// its cluster.
//
// A cluster for which * doesn't stand ([Targets].KeepsCopies) isn't put on the list, unless a source names it. If it
// was on the list before, nothing is done there while * is asked for: to delete copies because of a mistaken role would
// be worse. When the source is deleted, the copy there is deleted if the rights allow it; otherwise the condition says
// what to do.
//
// # The writes in the life of a source
//
//	W1  source: finalizer and list of clusters, one patch, before any copy
//	W2  each target: create the copy (and its namespace, where that is missing and may be made)
//	W3  source/status: the condition, when it changes; mere figures at most once a second; all of it about once in
//	    twenty seconds after twenty changes of status or reason of one generation
//	W4  each target that has drifted or whose source has changed: one apply
//	W5  each target that has to go: one delete; then the source: list shortened, or finalizer removed
//
// Whichever of them is the last that a process makes, the next process reaches the same end.
//
// # The condition
//
// Replicated is True when every target has the wanted configuration rolled out and available. The message has the
// figures of all clusters; the reason is that of the worst. A rollout that the Deployment controller there reports as
// stalled (ProgressDeadlineExceeded) is [ReasonStalled]. The condition is applied by our field manager, so conditions
// of the Deployment controller stay. A Deployment's condition has no generation, so the message names the generation
// that it is about: kubectl wait right after an edit may still see the previous condition.
//
// An event is sent when status or reason change: one for all clusters, however many replicas find the same. A replica
// sends ten events of one reason in a namespace at once, then one a minute, which says how many were left out.
//
// Text from elsewhere (a server's messages, names, values) is cleaned and shortened. A message has at most 1024 bytes,
// and names the worst clusters if it can't name all.
//
// # What is watched
//
// Copies are watched whole, not only their metadata and status: drift is found by comparing the spec, and a drifted
// label or annotation changes no generation. [TrimCopy], as the transform of the cache, drops what no decision depends
// on, above all most of the managed fields: more than half of a copy.
//
// # How long a drift lasts
//
// A repair takes an event, one live read of the source and one apply: some 15 ms if each API server answers within a
// few. The apply names the version that it was decided on. The Deployment controller, which sees the same drift, writes
// status meanwhile. Each of its writes in between costs a conflict, a read and another apply, and the longest repairs
// consist of those. An apply that names only the UID wouldn't conflict, but one that was in flight when its tenure
// ended could then undo what the next holder has written. If etcd's disk stalls, all of this waits for it.
//
// # Considerations
//
//   - The source is a Deployment like any other: if a Deployment controller runs in its cluster, it has Pods there,
//     too.
//   - divide gives what is left over after rounding to the largest remainders. A change of total or weights may move a
//     replica between clusters that weren't touched.
//   - A copy of a source that vanished without its finalizer (after a restore from an old backup, say) is left alone.
//     Only a copy that came into being after this very process released its source, by a request that was in flight, is
//     deleted.
//   - A target is away, for its share of a total, when its API server doesn't answer at all. One that answers and can't
//     store anything is shown with what it says, and keeps its share.
//   - Admission webhooks may take 30 s, and a reconcile waits 5 s for all that it does in a target. So a write that
//     takes longer fails once, and counts as no answer. The next one gets 35 s if the target answers a read. Each
//     replica makes two such writes at a time in each target. The source's other copies wait as long for their next
//     change. A wait for our own limits isn't such a write. A write that takes longer than 35 s is never made; the
//     condition says so.
//   - A target whose Secret was removed is away at once. Its share moves when this process has run for the grace, or,
//     if the targets are all clusters, when it has been unknown for the grace.
package replication
