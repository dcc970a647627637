package localplane

import (
	_ "embed"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// auditPolicy and kwokConfig are written into each cluster's folder, where they can be read beside the logs.
var (
	//go:embed audit-policy.yaml
	auditPolicy []byte
	//go:embed kwok.yaml
	kwokConfig []byte
)

// etcdSocket is where the API server finds etcd: a socket in the cluster's folder, which nobody else can enter. A
// TCP port would hand the cluster to every user of the machine. The path is relative, because the kernel allows no
// more than a hundred bytes; the ":0" is only there because etcd insists on a port.
const etcdSocket = "etcd.sock:0"

// controllers that a workload cluster runs: the ones that make Deployments, Jobs, namespaces, garbage collection
// and nodes behave. The others (volumes, certificates, clouds, autoscaling) have nothing to do here and cost start-up.
var controllers = []string{
	"serviceaccount-controller", "namespace-controller", "garbage-collector-controller", "deployment-controller",
	"replicaset-controller", "statefulset-controller", "daemonset-controller", "job-controller", "cronjob-controller",
	"pod-garbage-collector-controller", "node-lifecycle-controller", "taint-eviction-controller",
	"ttl-after-finished-controller", "disruption-controller", "resourcequota-controller",
	"endpointslice-controller", "clusterrole-aggregation-controller",
}

// etcdPeer is etcd's own address as a member: a single one has no peers, but wants it.
const etcdPeer = "unix://peer.sock:0"

// etcdMember returns the flags that describe a cluster's only etcd, for etcd itself and for restoring a snapshot.
func etcdMember(cluster string) []string {
	return []string{"--name=" + cluster, "--initial-advertise-peer-urls=" + etcdPeer,
		"--initial-cluster=" + cluster + "=" + etcdPeer}
}

func etcdArgs(cluster, dataDir string, unsafeNoFsync bool) []string {
	args := append(etcdMember(cluster),
		"--data-dir="+dataDir,
		"--listen-client-urls=unix://"+etcdSocket,
		"--advertise-client-urls=unix://"+etcdSocket,
		"--listen-peer-urls="+etcdPeer,
		"--quota-backend-bytes="+strconv.Itoa(8<<30),
		"--log-level=warn",
	)
	if unsafeNoFsync {
		args = append(args, "--unsafe-no-fsync")
	}
	return args
}

func apiServerArgs(config ClusterConfig, port int) []string {
	gates := map[string]bool{"ShardedListAndWatch": true}
	maps.Copy(gates, config.FeatureGates)
	var settings []string
	for _, gate := range slices.Sorted(maps.Keys(gates)) {
		settings = append(settings, fmt.Sprintf("%s=%t", gate, gates[gate]))
	}
	args := []string{
		"--etcd-servers=unix://" + etcdSocket,
		"--bind-address=127.0.0.1",
		"--advertise-address=127.0.0.1",
		"--secure-port=" + strconv.Itoa(port),
		"--endpoint-reconciler-type=none", // nobody here connects through the "kubernetes" Service
		"--service-cluster-ip-range=10.96.0.0/16",
		"--tls-cert-file=pki/apiserver.crt",
		"--tls-private-key-file=pki/apiserver.key",
		"--client-ca-file=pki/ca.crt",
		"--anonymous-auth=false",
		"--authorization-mode=RBAC",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=pki/service-account.key",
		"--service-account-signing-key-file=pki/service-account.key",
		"--allow-privileged=true",
		"--feature-gates=" + strings.Join(settings, ","),
		"--audit-policy-file=audit-policy.yaml",
		"--audit-log-path=audit.log",
		// Blocking: an event is in the file before the response is complete, so that even a killed API server
		// has lost none. The batching modes drop events when they fall behind.
		"--audit-log-mode=blocking",
		"--audit-log-maxsize=0", // one file, never rotated away under a reader
	}
	return append(args, config.ExtraAPIServerArgs...)
}

func controllerManagerArgs() []string {
	return []string{
		"--kubeconfig=controller-manager.kubeconfig",
		"--leader-elect=false",
		"--secure-port=0",
		"--use-service-account-credentials=true", // each controller under its own role, as in real clusters
		"--service-account-private-key-file=pki/service-account.key",
		"--root-ca-file=pki/ca.crt",
		"--controllers=" + strings.Join(controllers, ","),
		"--kube-api-qps=1000", // the defaults (20) would be what a Deployment test measures
		"--kube-api-burst=2000",
	}
}

func schedulerArgs() []string {
	return []string{
		"--kubeconfig=scheduler.kubeconfig",
		"--leader-elect=false",
		"--secure-port=0",
		"--kube-api-qps=1000",
		"--kube-api-burst=2000",
	}
}

func kwokArgs() []string {
	// Without --server-address and --node-port it listens nowhere.
	return []string{"--kubeconfig=kwok.kubeconfig", "--config=kwok.yaml"}
}
