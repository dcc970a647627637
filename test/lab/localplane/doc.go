// Package localplane runs real Kubernetes control planes on loopback, for tests, the demo and the bench: etcd and
// kube-apiserver, and in workload clusters kube-controller-manager, kube-scheduler and KWOK (which plays kubelets).
//
// # Setup
//
// The components are one multi-call binary, built from source by `make controlplane`: minutes the first time,
// seconds afterwards. FindBinary says where it is looked for; TENURE_CONTROLPLANE names another one.
//
// # Usage
//
//	planes, err := localplane.Start(ctx, localplane.Config{
//		Clusters: []localplane.ClusterConfig{{Name: "home"}, {Name: "west", Workload: true}},
//		Progress: os.Stderr,
//	})
//	if err != nil { ... }
//	defer planes.Stop()
//	client, err := kubernetes.NewForConfig(planes.Cluster("west").RESTConfig())
//
// Home and two workload clusters are ready in about six seconds on two cores. In tests, start them once per package
// (TestMain) and give each test a namespace of its own.
//
// Each cluster has a folder (Plane.Dir) with admin.kubeconfig, pki/, logs/ (one per component), audit.log and the
// configuration of KWOK and of the audit log. Only the API server listens on TCP, on 127.0.0.1; etcd is behind a
// socket in that folder, and the other components listen nowhere.
//
// # Pods
//
// KWOK starts a scheduled Pod at once. With restartPolicy Always it stays Running and Ready until it is deleted.
// With Never or OnFailure it ends after half a second, or after the time in the annotation
// tenure.dev/kwok-duration (as in "3s"): Succeeded, or Failed with exit code 1 if it carries the label
// tenure.dev/kwok-fail: "true". A failed Pod is not restarted, also not with OnFailure. Nothing is ever executed.
//
// # Audit log
//
// Every mutating request, list and watch is in Plane.AuditLog before its response is complete, with its
// User-Agent, object, outcome and time; a watch when it starts and when it ends. Writes to Shards (tenure.dev),
// Ats, Leases and Deployments, and created Pods, carry the request's and the stored object too. For other kinds
// the names that the API server generates and the UIDs of created objects are missing. Where TENURE_RIGHTS names a
// folder (package rights), replicas' reads of single objects are in it too.
//
// # Considerations
//
// Stop ends everything and removes a temporary folder. The processes also end when this process ends in any other
// way, SIGKILL included (on Linux; elsewhere they outlive a SIGKILL); its temporary folders are then removed by
// the next Start. Programs that want an orderly end on Ctrl-C pass Start a context from signal.NotifyContext and
// call Stop; the components are in process groups of their own and don't see the Ctrl-C. Goroutine-leak checks must
// allow for one goroutine, see nursery.
//
// A folder named by Config.Dir is kept. No other Start can use it.
//
// A cluster without Workload has no controller manager: namespaces stay Terminating, dependents of deleted owners
// stay, and no namespace gets a default service account (create the ones you need; tokens work).
//
// RBAC is on, and the admin is in system:masters: exempt from priority and fairness, and a user the API server's
// tracing trusts. To be limited as in production, run programs with ServiceAccountKubeconfig.
//
// Plane.Snapshot saves what a cluster holds, and Plane.Restore goes back to it, under clients that live on: with etcd's
// own tools, which are in the binary too. A second API server (Plane.StartSecond) is restored with the first.
//
// TmpfsData trades durability for speed (no fsync, data in memory). Figures taken with it say nothing about a disk.
package localplane
