// Package fleet runs replicas as processes against local control planes, for tests that hurt them: each replica is a
// bin/tenure with the service account and the rights that config/ ships, each talks to every API server through a fault
// proxy, and what it logs can be read as it runs.
//
//	f, err := fleet.Start(ctx, fleet.Options{Workloads: []string{"west", "east"}})
//	defer f.Stop()
//	r, err := f.StartReplica("r1")
//	err = f.AwaitSettled(ctx)
//	r.Kill()
//
// The proxy to the home cluster is a replica's own ([Fleet.HomeProxy]), so all that it says there can be hurt. The one
// to a workload cluster ([Fleet.Proxy]) is shared, because the kubeconfig Secrets are; rules tell replicas apart by
// their User-Agent, see [Agent]. With [Options.Direct] there are none.
package fleet
