// Package clusterhealth tells an operator which workload clusters can't be used, and why.
//
// A cluster is a Secret with a kubeconfig in the home cluster; package kubeconfig refuses what must not be in one. [Health]
// watches the Secrets and asks each cluster regularly whether it answers; what it finds becomes a metric, a log line and an
// event on the Secret, once per change, and the event once for all replicas. It never stops anything: one cluster's trouble
// is no other cluster's.
//
// Where the connection in use is made of what the Secret holds, whoever owns it says whether the cluster can be used, so that
// there is one verdict ([Use].Ask): package shard's, which its protocol goes by too. A cluster that works and that nothing of
// this replica depends on is asked rarely, and no connection to it stays open.
//
// It also has clusters go by the limits in their Secrets' annotations, and tells of those that can't be used.
package clusterhealth
