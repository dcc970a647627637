// Package v1alpha1 holds Tenure's own records, kept in the home cluster.
//
// A Shard record says who owns a part of a cluster's hash space. Its spec is what
// the coordinator wants, its status is what is; status changes only by
// compare-and-swap on the resourceVersion, and its epoch never falls.
//
// +kubebuilder:object:generate=true
// +groupName=tenure.dev
package v1alpha1
