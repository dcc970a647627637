// Package lab runs Tenure on this machine, for the demo, the bench, chaos and the tests that need real processes:
// control planes with what config/ ships installed on them, replicas as processes, fault proxies between the two, and
// what the replicas log and count. Its subpackages are the parts: localplane starts control planes, localjaeger takes
// traces, faultproxy injects faults into requests to an API server, virtual makes many clusters of one plane, labtest
// is for tests.
//
// A replica gets the rights that it has in production, and no others: it is a process of bin/tenure with the service
// account and the RBAC rules of config/.
//
//	f, err := lab.Start(ctx, lab.Options{Workloads: []string{"west", "east"}})
//	defer f.Stop()
//	r, err := f.StartReplica("r1")
//	err = f.AwaitSettled(ctx, time.Minute)
//	r.Kill()
//
// The proxy to the home cluster is a replica's own ([Fleet.HomeProxy]), so all that it says there can be hurt. The one
// to a workload cluster ([Fleet.Proxy]) is shared, because the kubeconfig Secrets are; rules tell replicas apart by
// their User-Agent, see [Agent]. With [Options.Direct] there are none. [Fleet.PutBehind] makes a replica reach home
// through a second API server of it, which can lag. [Fleet.AddVirtual] adds a virtual cluster on a workload plane.
package lab
