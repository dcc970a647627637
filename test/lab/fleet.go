package lab

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-dev/tenure/pkg/console"
	"github.com/tenure-dev/tenure/test/lab/faultproxy"
	"github.com/tenure-dev/tenure/test/lab/localjaeger"
	"github.com/tenure-dev/tenure/test/lab/localplane"
	"github.com/tenure-dev/tenure/test/lab/virtual"
)

// Options of a fleet; zero values mean the defaults.
type Options struct {
	// Workloads are the names of the workload clusters. All are known to the replicas from the start.
	Workloads []string
	// Untold leaves them unknown: the caller adds them.
	Untold bool
	// Empty installs nothing in the workload clusters; it takes Untold.
	Empty bool
	// Bare leaves out what makes Pods run in the workload clusters: an API server alone is enough for many tests.
	Bare bool
	// NoNodes leaves out nodes, scheduler and KWOK: Pods stay Pending until somebody else ends them.
	NoNodes bool
	// Gates are feature gates of all API servers.
	Gates map[string]bool
	// Planes says how to start the planes. Its clusters, binary and Prepare are set by this package.
	Planes localplane.Config
	// LeaseDuration of the replicas; default 5 s.
	LeaseDuration time.Duration
	// ShardsPerCluster; default 8. Each cluster gets as many, empty ones too, unless Lean says otherwise.
	ShardsPerCluster int
	// Lean leaves how many shards a cluster gets to the replicas' own defaults and to Flags.
	Lean bool
	// Tenure is the binary of the replicas. If it is empty, Build makes one, with the race detector if this program
	// has it.
	Tenure string
	// Flags and Environment are added to those of each replica.
	Flags, Environment []string
	// Direct connects the replicas with the API servers themselves. What goes through a proxy can be hurt, and takes time
	// of the processors that is missing where gaps are measured.
	Direct bool
	// SecondHome gives home a second API server. Replicas talk to both in turn, request by request, so not with Direct.
	SecondHome bool
	// Seed of the proxies.
	Seed uint64
	// Replication adds the right to replicate Deployments of the home cluster.
	Replication bool
	// Jaeger, if there is one, is started too, and what happens in API servers and replicas is traced to it. The replicas
	// are in the group system:monitoring then, so that API servers hang their spans below theirs; their rights stay those
	// of the service account.
	Jaeger *localjaeger.Config
	// UserAgent of our own requests, as in an audit log; default "lab".
	UserAgent string
}

// Fleet is control planes with what a user would install, and the replicas on them.
type Fleet struct {
	Planes  *localplane.Planes
	Jaeger  *localjaeger.Jaeger // nil without one
	Second  *localplane.Second  // home's; nil without Options.SecondHome
	options Options
	root    string
	clients map[string]client.Client

	mu       sync.Mutex // guards all below
	proxies  map[string]*faultproxy.Proxy
	homes    map[string]*faultproxy.Proxy // by replica
	hosts    map[string]*virtual.Host     // of virtual clusters, by plane
	served   []string                     // the clusters that replicas must serve
	replicas []*Replica                   // every process ever started
}

// Scheme knows the kinds of the lab: Kubernetes' own, Ats and Shards.
func Scheme() *runtime.Scheme {
	scheme, err := console.Scheme()
	utilruntime.Must(err) // fails if two kinds have one name: a mistake in this program
	return scheme
}

// Start starts the planes, installs config/ and makes the workload clusters known. It starts no replica. ctx bounds the
// start only.
func Start(ctx context.Context, o Options) (_ *Fleet, err error) {
	o.LeaseDuration, o.UserAgent = cmp.Or(o.LeaseDuration, 5*time.Second), cmp.Or(o.UserAgent, "lab")
	if !o.Lean {
		o.ShardsPerCluster = cmp.Or(o.ShardsPerCluster, 8)
	}
	if o.Jaeger != nil && !o.Direct {
		return nil, errors.New("lab: a fleet with Jaeger must be Direct: a proxy can't pass on the certificate that puts " +
			"replicas into system:monitoring")
	}
	if o.SecondHome && o.Direct {
		return nil, errors.New("lab: a fleet whose replicas talk to two API servers of home can't be Direct: the proxy " +
			"takes turns")
	}
	f := &Fleet{
		options: o, clients: map[string]client.Client{},
		proxies: map[string]*faultproxy.Proxy{}, homes: map[string]*faultproxy.Proxy{}, hosts: map[string]*virtual.Host{},
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Stop())
		}
	}()
	if f.root, err = Root(); err != nil {
		return nil, err
	}
	if err := f.startPlanes(ctx); err != nil {
		return nil, err
	}
	if o.SecondHome {
		if f.Second, err = f.Planes.Cluster(Home).StartSecond(ctx); err != nil {
			return nil, err
		}
	}
	if f.options.Tenure == "" {
		if f.options.Tenure, err = Build(ctx, f.Planes.Dir(), "tenure", RaceDetector); err != nil {
			return nil, err
		}
	}
	scheme := Scheme()
	for _, plane := range f.Planes.Clusters() {
		config := plane.RESTConfig()
		config.UserAgent = o.UserAgent
		if f.clients[plane.Name()], err = client.New(config, client.Options{Scheme: scheme}); err != nil {
			return nil, fmt.Errorf("making a client of cluster %s: %w", plane.Name(), err)
		}
	}
	if o.Planes.Progress != nil {
		fmt.Fprintln(o.Planes.Progress, "installing CRDs, RBAC and kubeconfigs from config/")
	}
	if err := f.install(ctx); err != nil {
		return nil, err
	}
	if o.Untold {
		return f, nil
	}
	for _, name := range o.Workloads {
		if err := f.AddCluster(ctx, name, name); err != nil {
			return nil, err
		}
		f.served = append(f.served, name)
	}
	return f, nil
}

// startPlanes starts Jaeger before the API servers, whose flags name it.
func (f *Fleet) startPlanes(ctx context.Context) (err error) {
	config := f.options.Planes
	config.Clusters = []localplane.ClusterConfig{{Name: Home, FeatureGates: f.options.Gates}}
	for _, name := range f.options.Workloads {
		config.Clusters = append(config.Clusters, localplane.ClusterConfig{Name: name, Workload: !f.options.Bare,
			NoNodes: f.options.NoNodes, FeatureGates: f.options.Gates})
	}
	if f.options.Jaeger != nil {
		config.Prepare = func(dir string) (args []string, err error) {
			jaeger := *f.options.Jaeger
			jaeger.Dir = filepath.Join(dir, "jaeger")
			if f.Jaeger, err = localjaeger.Start(ctx, jaeger); err != nil {
				return nil, err
			}
			return f.Jaeger.APIServerArgs(), nil
		}
	}
	f.Planes, err = localplane.Start(ctx, config)
	return err
}

// Client is the admin's, straight to a cluster's API server.
func (f *Fleet) Client(cluster string) client.Client { return f.clients[cluster] }

// Workloads are the names of the workload clusters that there are planes for.
func (f *Fleet) Workloads() []string { return f.options.Workloads }

// StartReplica starts a process. Flags are added to its command line.
func (f *Fleet) StartReplica(name string, flags ...string) (*Replica, error) {
	return f.StartReplicaOf(f.options.Tenure, name, flags...)
}

// StartReplicaOf starts a process of another binary than the fleet's.
func (f *Fleet) StartReplicaOf(binary, name string, flags ...string) (*Replica, error) {
	kubeconfig, err := f.homeKubeconfig(name, nil)
	if err != nil {
		return nil, err
	}
	run := 1
	for _, r := range f.Replicas() {
		if r.Name == name {
			run++
		}
	}
	r, err := StartProgram(Program{
		Name: name, Binary: binary, LogPath: filepath.Join(f.Planes.Dir(), "replicas", fmt.Sprintf("%s.%d.log", name, run)),
		Environment: f.environment(), Addresses: 2,
		Args: func(addresses []string) []string {
			return slices.Concat([]string{
				"--home-kubeconfig", kubeconfig, "--namespace", Namespace, "--replica", name,
				"--lease-duration", f.options.LeaseDuration.String(),
				"--metrics-bind-address", addresses[0], "--metrics-secure=false", "--health-probe-bind-address", "0",
				"--pprof-bind-address", addresses[1],
			}, f.divided(), f.options.Flags, flags)
		},
	})
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.replicas = append(f.replicas, r)
	return r, nil
}

// divided are the flags that say how many shards a cluster gets.
func (f *Fleet) divided() []string {
	if f.options.Lean {
		return nil
	}
	return []string{"--shards-per-cluster", strconv.Itoa(f.options.ShardsPerCluster), "--objects-per-shard", "0"}
}

func (f *Fleet) environment() []string {
	if f.Jaeger == nil {
		return f.options.Environment
	}
	return slices.Concat(f.Jaeger.Environment(), f.options.Environment)
}

// Replicas are all processes that were ever started.
func (f *Fleet) Replicas() []*Replica {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.replicas)
}

// Alive returns the processes that run and weren't asked to end.
func (f *Fleet) Alive() []*Replica {
	return slices.DeleteFunc(f.Replicas(), func(r *Replica) bool { return r.Ended() || r.Asked() })
}

// Stop ends everything: replicas, proxies, planes, Jaeger. API servers that can't deliver their last spans wait for
// long, so that goes last.
func (f *Fleet) Stop() error {
	for _, r := range f.Replicas() {
		r.Kill()
	}
	f.mu.Lock()
	for _, proxies := range []map[string]*faultproxy.Proxy{f.proxies, f.homes} {
		for _, p := range proxies {
			p.Close()
		}
	}
	for _, h := range f.hosts {
		h.Close()
	}
	f.mu.Unlock()
	var errs []error
	if f.Planes != nil {
		errs = append(errs, f.Planes.Stop())
	}
	if f.Jaeger != nil {
		errs = append(errs, f.Jaeger.Stop())
	}
	return errors.Join(errs...)
}

// Keep copies all logs, audit logs too, to a new folder that stays, and returns it: that is what is needed to look
// into a failure once the planes are gone.
func (f *Fleet) Keep(name string) (string, error) {
	to, err := os.MkdirTemp("", "tenure-"+name+"-")
	if err != nil {
		return "", fmt.Errorf("keeping the logs: %w", err)
	}
	from := f.Planes.Dir()
	err = filepath.WalkDir(from, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".log" {
			return err
		}
		inside, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		return copyFile(path, filepath.Join(to, inside))
	})
	if err != nil {
		return to, fmt.Errorf("keeping the logs in %s: %w", to, err)
	}
	return to, nil
}

// copyFile copies a file piece by piece: an audit log may be larger than the memory.
func copyFile(from, to string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return err
	}
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
