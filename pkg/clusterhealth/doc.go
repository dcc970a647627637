// Package clusterhealth tells an operator which workload clusters can't be used, and why.
//
// A cluster is a Secret with a kubeconfig in the home cluster. [CheckConfig] refuses what must not be in one: anything
// that would run a program or read a file of the controller's own machine. [Health] watches the Secrets and asks each
// cluster regularly whether it answers; what it finds becomes a metric, a log line and an event on the Secret, once per
// change. It never stops anything: one cluster's trouble is no other cluster's.
package clusterhealth
