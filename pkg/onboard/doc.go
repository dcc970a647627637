// Package onboard adds workload clusters to a fleet, checks them, renews their credentials and removes them. The
// commands below `tenure cluster` are its front; the [Renewer], which each replica runs, renews tokens before they
// expire.
//
// A workload cluster needs three things: the manifests of config/workload in it, a kubeconfig Secret in the home
// cluster, and replicas that serve it. Every command is made in three parts: gather (reads only), a pure core that
// decides ([objectsFor], [decide], [judgeSecret], [serving]), and act, which carries out what was decided and nothing
// else. So a dry run is the first two parts, and a second run finds nothing to do.
//
// # Which cluster is which
//
// The UID of a cluster's namespace kube-system tells it from all others; the Secret keeps it in an annotation. A Secret
// of another cluster is never overwritten, and a cluster is never added under a second name: replicas would work on its
// objects twice. A Secret without the annotation, made by hand, is recognised by its server.
//
// # What is ours
//
// What a command creates in a workload cluster gets the label [madeByLabel]. What was there before is brought up to
// date where it differs, and doesn't get the label. Only what has it is ever deleted.
//
// # Considerations
//
// The caller must be an admin of the cluster that is added, since only a user with the rights of a role can give
// it. In home, Secrets, Shards, Leases and events of the fleet's namespace are enough.
//
// The token is bounded in time. The coordinator renews it, with the token itself: the fleet's service account may ask
// for tokens of its own and of no other account. A kubeconfig that somebody else put into the Secret is never renewed,
// since its sum isn't the one in the annotation [SumAnnotation]. A token that was replaced stays valid until it
// expires, since Kubernetes can't revoke one; removing the cluster deletes its service account, and all tokens with it.
//
// No token is printed, and none is part of an error.
package onboard
