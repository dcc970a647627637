// Package kubeconfig lets the kubeconfigs of clusters do no more than what they are for: reach one API server. They are
// in Secrets, and perhaps in files.
//
// A kubeconfig is a program in disguise. It can name a command to run, files to read, a proxy to go through and a user
// to pretend to be, and the parsers that everybody uses open those files while they parse: one `tokenFile: /dev/zero`
// took a replica to gigabytes within seconds. Who may write a Secret in the home cluster must not be able to do any of
// that in the controller's own process.
//
// So [Inspect] reads the text as data, without a look at anything that it names. It refuses what the [Policy] doesn't
// allow, and builds a new kubeconfig from what is left of the current context: one cluster, one user, fields that are
// known here. Nobody gets to see the text itself. [Access.REST] is the connection; it stays with its server, whatever
// that server's redirects say.
//
// # The provider
//
// multicluster-runtime's kubeconfig provider reads Secrets and parses what is in them. [Fence] stands between the two:
// the provider sees the home cluster's manager with a client that hands out Secrets with the new kubeconfig inside. A
// provider of our own would copy all code there that engages, replaces and removes clusters, to change one line of it.
// The fence needs no more than that the provider reads through the manager's client, and a test on a real fleet
// fails where it doesn't.
//
// For a Secret that is refused the provider goes on reading what was accepted last under that name, so that a mistake
// takes no cluster away that is being served. Where nothing was accepted before, or the replica started later, the
// Secret seems not to be there: what worked is kept in memory only, since a second place for credentials would have to
// be guarded like the first. To take a cluster away, delete its Secret. What a changed Secret means is decided by
// package shard, not by the provider, which takes the cluster away before it gives the new one.
//
// # Files
//
// A [Folder] is another source of clusters. Each of its files appears as a Secret to what reads Secrets of the home
// cluster through the manager of [Folder.Join]: the provider, behind its fence, and package clusterhealth. All that
// holds for Secrets so holds for files, without a second provider. Nothing is written to home, where a file's
// credentials have no business.
//
// # Limits
//
// [LimitsOf] reads how much one replica may ask of the cluster from the Secret's annotations.
//
// # Errors
//
// An error says which field of the kubeconfig is refused and what to do instead. It never repeats what is in the field,
// nor what a parser said, since parsers quote.
package kubeconfig
