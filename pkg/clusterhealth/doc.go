// Package clusterhealth tells an operator which workload clusters can't be used, and why. Each replica runs one
// [Health]; packages console and onboard ask about single clusters by [Look].
//
// A cluster is a Secret with a kubeconfig in the home cluster; package kubeconfig refuses what must not be in one.
// Health watches the Secrets and regularly asks each cluster whether it answers. It reports a change by a metric, a
// log line and an event on the Secret. All replicas together send one event, and repeat it while trouble lasts. A
// replica that starts, or takes part in the fleet anew, sends its own: readers ignore what was said before all replicas
// began. When a cluster is removed whose trouble was reported, each sends one that ends this. If many clusters change
// at once, a replica sends their events over minutes, for a thousand of them, and in no order: while clusters go on
// changing, the event about one may come long after those about others. The answer to an edited Secret doesn't wait.
//
// Health never stops anything: trouble in one cluster doesn't affect the others.
//
// # The connection in use
//
// The program may already have a connection to the cluster ([Config].InUse). If it was made of the kubeconfig that
// the Secret holds now, Health opens no other connection and takes the verdict of [Use].Ask. In command tenure this
// verdict comes from package shard, so the operator sees what the sharding protocol acts on. If the Secret holds
// another kubeconfig by now, and that one doesn't work or was refused, the cluster stays usable for as long as the
// connection in use works. Health then reports the Secret as rejected. Without sharding, this holds for a kubeconfig
// that was refused ([Config].Kept).
//
// A cluster that works, and that nothing in this replica depends on, is asked rarely. No connection to it is kept
// open.
//
// # Limits
//
// The annotations of a Secret may limit how much a replica asks of the cluster. Health hands them to [Config].Limit,
// and reports limits that are invalid by a log line and an event.
package clusterhealth
