package shard

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/tenure-dev/tenure/pkg/fairqueue"
	"github.com/tenure-dev/tenure/pkg/kubeconfig"
	"github.com/tenure-dev/tenure/shard/internal/member"
	"github.com/tenure-dev/tenure/shard/keyspace"
	"github.com/tenure-dev/tenure/shard/plan"
)

// Defaults of [Config].
const (
	DefaultNamespace     = "tenure-system"
	DefaultLeaseDuration = 10 * time.Second
	DefaultDrainTimeout  = 20 * time.Second
	DefaultRemovalGrace  = 10 * time.Second
	DefaultShardBits     = 3
)

// Config says how one replica takes part. The zero value of every field but Replica and Kinds means its default.
type Config struct {
	// Namespace is the home cluster's namespace that holds the Leases and Shard records. Default "tenure-system".
	Namespace string
	// Fleet distinguishes fleets that share a namespace: each has its own Leases, records and coordinator. It is a
	// DNS label. The default, "", is a fleet like others.
	Fleet keyspace.Fleet
	// Replica is the stable name of this process, unique in the fleet; in Kubernetes, use the Pod's name. It must be
	// a DNS label or subdomain of at most 63 characters: the names of its Leases begin with it, and it is the value of
	// a label.
	Replica string
	// Kinds are the kinds that shards hold in their caches. All others are read live, and have neither informers nor
	// indexes where clusters are divided. See [Primary] and [Owned].
	Kinds []Kind
	// ShardBits divides each new workload cluster into 2^ShardBits shards, 0 to 8; see ObjectsPerShard. A cluster
	// that has a layout already keeps its shards. Default 3. For one shard per cluster, set WholeClusters.
	ShardBits int
	// WholeClusters makes each new workload cluster one shard. One that has a layout already keeps its shards.
	// (ShardBits 0 means its default.) ShardBits and ObjectsPerShard don't count then.
	WholeClusters bool
	// ObjectsPerShard gives a small new workload cluster fewer shards: a power of two of them, so that none has more
	// than this many objects on average. The objects of the primary kinds are counted when the cluster is first seen;
	// a cluster that can't be counted gets all shards. Default 0: every cluster gets 2^ShardBits shards.
	ObjectsPerShard int64
	// LeaseDuration is how long a silent replica keeps its shards, 1 s to 24 h. Use the same value in the whole fleet. A
	// crash leaves keys unserved for about this long. In each such time a replica writes five times at most while
	// nothing moves: four renewals and one report of its load. Default 10 s.
	LeaseDuration time.Duration
	// DrainTimeout bounds how long running reconciles may delay a move before they are cancelled, 1 ms to 24 h. Default
	// 20 s.
	DrainTimeout time.Duration
	// RemovalGrace is how long a cluster that the provider takes away is still served. A cluster that comes back
	// within this time has changed, and wasn't removed. 1 ms to 24 h. Default 10 s.
	RemovalGrace time.Duration
	// Weight is this replica's share of the work relative to the others', at most 1000. Default 1.
	Weight int
	// Version of the program. tenure status shows it, and the User-Agent begins with it.
	Version string
	// HomeCluster makes the home cluster a workload cluster, under this name. Its shards ignore
	// manager.Options.Cache; see [NewManager]. Default: it isn't one.
	HomeCluster multicluster.ClusterName
	// ClientFiltering turns the server-side filtering of watches (KEP-5866) off.
	ClientFiltering bool
	// Limits bound this replica's requests to each workload cluster, in addition to what the cluster's API server
	// allows; see [Manager.SetLimits] for one cluster. Requests to the home cluster for Leases and records never wait
	// for them. Default: no limits.
	Limits kubeconfig.Limits
	// Pod describes the process's own Pod, and selects those of its peers. With the zero value, a dead replica is
	// found by its lease alone.
	Pod Pod
	// Backlogs returns the keys that wait in the program's workqueues. The replica's Lease reports where they are
	// many. It is called before each renewal, so it must return at once. Default: none.
	Backlogs func() []fairqueue.Backlog
	// Observer receives events, for metrics and traces. Default: [NopObserver].
	Observer Observer
}

// Pod lets peers learn from a Pod's status that a replica has died, without waiting for its lease.
type Pod struct {
	// Container is the container that the process runs in, as NAMESPACE/POD/UID/CONTAINER, from the downward API. Set
	// it only if the process ends with that container: not in Pods that share the process namespace of their
	// containers or their node.
	Container string
	// TerminationLog is the file that the container's kubelet reads its termination message from
	// (terminationMessagePath). It must exist. Its content is replaced. Without it, Container has no effect: the message
	// is what proves which incarnation has ended.
	TerminationLog string
	// Peers is a label selector for the replicas' Pods, in Namespace. Without it, no Pods are watched. A replica that
	// may not read Pods finds dead peers by their leases alone.
	Peers string
}

// agent is how the program calls itself in User-Agents.
func (c Config) agent() string { return "tenure/" + c.Version }

// divides reports whether a cluster may have more than one shard.
func (c Config) divides() bool { return c.ShardBits > 0 }

// withDefaults sets the fields that have their zero value.
func (c Config) withDefaults() Config {
	c.Namespace = cmp.Or(c.Namespace, DefaultNamespace)
	c.LeaseDuration = cmp.Or(c.LeaseDuration, DefaultLeaseDuration)
	c.DrainTimeout = cmp.Or(c.DrainTimeout, DefaultDrainTimeout)
	c.RemovalGrace = cmp.Or(c.RemovalGrace, DefaultRemovalGrace)
	c.ShardBits = cmp.Or(c.ShardBits, DefaultShardBits)
	if c.WholeClusters {
		c.ShardBits = 0
	}
	c.Version = cmp.Or(c.Version, "devel")
	if c.Observer == nil {
		c.Observer = NopObserver{}
	}
	return c
}

// Validate reports every field that can't work, by name.
func (c Config) Validate() error {
	c = c.withDefaults()
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if msgs := validation.IsDNS1123Subdomain(c.Replica); len(msgs) > 0 {
		fail("Replica %q: %s", c.Replica, strings.Join(msgs, "; "))
	} else if len(c.Replica) > validation.LabelValueMaxLength {
		fail("Replica %q: must be at most %d characters, since it is a label's value", c.Replica,
			validation.LabelValueMaxLength)
	}
	if msgs := validation.IsDNS1123Label(c.Namespace); len(msgs) > 0 {
		fail("Namespace %q: %s", c.Namespace, strings.Join(msgs, "; "))
	}
	if msgs := validation.IsDNS1123Label(string(c.Fleet)); c.Fleet != "" && len(msgs) > 0 {
		fail("Fleet %q: %s", c.Fleet, strings.Join(msgs, "; "))
	}
	checkKinds(c.Kinds, fail)
	if strings.ContainsFunc(c.Version, func(r rune) bool { return r < ' ' || r > '~' }) { // as from a file with a newline
		fail("Version %q: must be printable ASCII, since every request's User-Agent has it", c.Version)
	}
	if c.ShardBits < 0 || c.ShardBits > keyspace.MaxBits {
		fail("ShardBits %d: must be 0 to %d", c.ShardBits, keyspace.MaxBits)
	}
	if c.ObjectsPerShard < 0 {
		fail("ObjectsPerShard %d: must not be negative; 0 gives each new cluster all its shards", c.ObjectsPerShard)
	}
	if c.LeaseDuration < time.Second {
		fail("LeaseDuration %v: must be at least 1s, or renewals alone would load the home cluster", c.LeaseDuration)
	}
	if c.LeaseDuration > member.MaxDuration {
		fail("LeaseDuration %v: must be at most 24h: a crash leaves keys unserved for that long", c.LeaseDuration)
	}
	for _, wait := range []struct {
		name string
		is   time.Duration
	}{{"DrainTimeout", c.DrainTimeout}, {"RemovalGrace", c.RemovalGrace}} {
		if wait.is < time.Millisecond || wait.is > member.MaxDuration { // a bare number counts nanoseconds
			fail("%s %v: must be from 1ms to %v", wait.name, wait.is, member.MaxDuration)
		}
	}
	if c.Pod.Container != "" && !isContainer(c.Pod.Container) {
		fail("Pod.Container %q: must be NAMESPACE/POD/UID/CONTAINER", c.Pod.Container)
	}
	if _, err := labels.Parse(c.Pod.Peers); err != nil {
		fail("Pod.Peers %q: %w", c.Pod.Peers, err)
	}
	if err := checkName(c.HomeCluster); c.HomeCluster != "" && err != nil {
		fail("HomeCluster %q: %w", c.HomeCluster, err)
	}
	if err := c.Limits.Validate(); err != nil {
		fail("Limits: %w", err)
	}
	if c.Weight < 0 || c.Weight > plan.MaxWeight { // a larger weight would count as MaxWeight, and be equal to it
		fail("Weight %d: must be from 1 to %d; divide the weights of all replicas by the same number",
			c.Weight, plan.MaxWeight)
	}
	return errors.Join(errs...)
}

// isContainer reports whether a text has the four parts that name a container.
func isContainer(text string) bool {
	parts := strings.Split(text, "/")
	return len(parts) == 4 && !slices.Contains(parts, "")
}
