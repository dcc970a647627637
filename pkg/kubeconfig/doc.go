// Package kubeconfig lets the kubeconfigs of clusters do no more than what they are for: reach one API server. They are
// in Secrets, and perhaps in files.
//
// A kubeconfig is a program in disguise. It can name a command to run, files to read, a proxy to go through and a
// user to pretend to be. The usual parsers open those files while they parse: one `tokenFile: /dev/zero` took a
// replica to gigabytes within seconds. A user who may write a Secret in the home cluster must not be able to do any
// of that in the controller's own process.
//
// So [Inspect] reads the text as data, without a look at anything that it names. It refuses what the [Policy]
// doesn't allow, and builds a new kubeconfig from what is left of the current context: one cluster, one user, and
// only fields that are known here. No other code gets the original text. [Access.REST] is the connection; it stays
// with its server, whatever that server's redirects say.
//
// # The provider
//
// multicluster-runtime's kubeconfig provider reads Secrets and parses what is in them. [Fence] stands between the two:
// the provider sees the home cluster's manager with a client that hands out Secrets with the new kubeconfig inside. A
// provider of our own would copy all code there that engages, replaces and removes clusters, to change one line of it.
// The fence needs no more than that the provider reads through the manager's client, and a test on a real fleet
// fails where it doesn't.
//
// If a Secret is refused, the provider keeps reading what was last accepted under that name. So a mistake doesn't
// remove a cluster that is being served, nor does a Secret that is deleted and comes back refused within a grace. If
// nothing was accepted since the replica started, the Secret seems not to exist: accepted kubeconfigs are kept in
// memory only, since a second store of credentials would need the same protection as the first. To remove a cluster,
// delete its Secret. A refusal that may pass by itself, such as a file that isn't there yet, is an error instead, and
// looked at again every half minute. It leaves a connected cluster as it is, but a Secret that was away and comes back
// so has no cluster until it has passed. If a Secret changes, the provider removes the cluster before it adds the new
// one; package shard decides what the change means.
//
// # Files
//
// A [Folder] is another source of clusters. Each of its files appears as a Secret to what reads Secrets of the home
// cluster through the manager of [Folder.Join]: the provider, behind its fence, and package clusterhealth. All that
// holds for Secrets so holds for files, without a second provider. Nothing is written to home, where a file's
// credentials have no business.
//
// Where the policy allows a kubeconfig to name files, each is read once before client-go reads it: a regular file of
// bounded size, with a certificate in it if it is an authority's. In a file of a folder, a relative path is beside that
// file, also that of a program (exec.command) if it has a slash. A Secret is nowhere, so its paths of files have to be
// absolute.
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
