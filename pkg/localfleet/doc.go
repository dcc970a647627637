// Package localfleet puts into local control planes what a user would: the manifests of config/, a namespace that is
// ready for Pods, and the Secrets that make workload clusters known. What the replicas find there, and no more, they
// have in production too.
//
// # Usage
//
//	planes, err := localplane.Start(ctx, ...) // one of the clusters is called localfleet.Home
//	...
//	fleet, err := localfleet.Install(ctx, planes, localfleet.Config{})
//	err = fleet.AddCluster(ctx, "west")
//
// Every plane but home gets what config/workload has. Replicas run with the file that Kubeconfig names.
package localfleet
