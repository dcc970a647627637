package localplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"

	"github.com/tenure-dev/tenure/test/lab/rights"
)

// Planes are running control planes. Stop them; if the process dies first, they die with it.
type Planes struct {
	folder *folder
	data   *folder // etcd's data on shared memory; nil when it is in folder
	planes []*Plane

	// died receives the first unasked-for end of a component.
	died chan error
	stop func() error // sync.OnceValue
}

// Start starts the control planes and returns when all of them are ready: every API server answers /readyz, and in
// workload clusters a Pod would be scheduled. ctx bounds the start only. If anything fails, everything is stopped
// again and the error carries the end of the log that tells why.
func Start(ctx context.Context, config Config) (*Planes, error) {
	if err := config.Validate(); err != nil {
		return nil, fmt.Errorf("starting control planes: %w", err)
	}
	binary, err := config.binary()
	if err != nil {
		return nil, fmt.Errorf("starting control planes: %w", err)
	}
	planes, err := layOut(config, binary)
	if err != nil {
		return nil, fmt.Errorf("starting control planes: %w", err)
	}
	if err := planes.prepare(config.Prepare); err != nil {
		return nil, fmt.Errorf("starting control planes: %w", errors.Join(err, planes.Stop()))
	}
	failures := make([]error, len(planes.planes))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var group sync.WaitGroup
	for i, plane := range planes.planes {
		group.Go(func() {
			if failures[i] = plane.start(ctx); failures[i] != nil {
				cancel() // the others need not come up any more
			}
		})
	}
	group.Wait()
	if err := rootCause(failures); err != nil {
		return nil, fmt.Errorf("starting control planes: %w", errors.Join(err, planes.Stop()))
	}
	return planes, nil
}

// prepare has the caller prepare the folder.
func (p *Planes) prepare(do func(dir string) ([]string, error)) error {
	if do == nil {
		return nil
	}
	args, err := do(p.Dir())
	for _, plane := range p.planes {
		plane.config.ExtraAPIServerArgs = slices.Concat(args, plane.config.ExtraAPIServerArgs)
	}
	return err
}

// rootCause leaves out the failures that only say that we gave up because of another one.
func rootCause(failures []error) error {
	var causes []error
	for _, err := range failures {
		if err != nil && !errors.Is(err, context.Canceled) {
			causes = append(causes, err)
		}
	}
	if len(causes) == 0 {
		return errors.Join(failures...)
	}
	return errors.Join(causes...)
}

func (c Config) binary() (string, error) {
	if c.Binary == "" {
		return FindBinary()
	}
	return checkBinary(c.Binary, "named by Config.Binary", "make controlplane")
}

// roomInMemory reports whether the machine has memory as a folder, and enough of it for the data of some clusters.
// Containers often have 64 MB, which is less than etcd allocates at once.
func roomInMemory(clusters int) bool {
	var disk syscall.Statfs_t
	if err := syscall.Statfs(sharedMem, &disk); err != nil {
		return false
	}
	return uint64(disk.Bavail)*uint64(disk.Bsize) >= uint64(clusters)*dataOfCluster
}

// dataOfCluster is what etcd may need for a cluster, in bytes, of which it allocates a quarter at once.
const dataOfCluster = 256 << 20

// layOut makes the folders and the planes in them, and starts nothing.
func layOut(config Config, binary string) (*Planes, error) {
	sweep(os.TempDir())
	sweep(sharedMem)
	root, err := openFolder(config.Dir, "")
	if err != nil {
		return nil, err
	}
	planes := &Planes{folder: root, died: make(chan error, 1)}
	planes.stop = sync.OnceValue(planes.stopAll)
	if config.TmpfsData && roomInMemory(len(config.Clusters)) {
		if planes.data, err = openFolder("", sharedMem); err != nil {
			return nil, errors.Join(err, root.close())
		}
	}
	progress := progressTo(config)
	progress("control planes run in %s", root.path)
	for _, cluster := range config.Clusters {
		dir := filepath.Join(root.path, cluster.Name)
		dataDir := filepath.Join(dir, "etcd")
		if planes.data != nil {
			dataDir = filepath.Join(planes.data.path, cluster.Name)
		}
		planes.planes = append(planes.planes, &Plane{
			config: cluster, binary: binary, dir: dir, dataDir: dataDir, noFsync: config.TmpfsData,
			garbageFrom: config.GarbageFrom,
			progress:    progress, pickPorts: FreePorts,
			onDeath: func(err error) { planes.report(fmt.Errorf("cluster %s: %w", cluster.Name, err)) },
		})
	}
	return planes, nil
}

// progressTo returns a function that writes whole lines, from several planes at once.
func progressTo(config Config) func(format string, args ...any) {
	var mu sync.Mutex // guards the writer
	return func(format string, args ...any) {
		if config.Progress == nil {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(config.Progress, format+"\n", args...)
	}
}

// report keeps the first death for Wait; the ones it causes add nothing.
func (p *Planes) report(err error) {
	select {
	case p.died <- err:
	default:
	}
}

// Wait blocks until ctx ends, and then returns nil, or until a component ends without having been stopped, and then
// returns an error with the end of its log. It is how a long-running program learns that etcd's disk is full.
func (p *Planes) Wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-p.died:
		p.report(err) // for the next caller
		return err
	}
}

// Cluster returns the plane of that name, nil if there is none.
func (p *Planes) Cluster(name string) *Plane {
	for _, plane := range p.planes {
		if plane.Name() == name {
			return plane
		}
	}
	return nil
}

// Clusters returns all planes, in the order of the configuration.
func (p *Planes) Clusters() []*Plane { return slices.Clone(p.planes) }

// Dir is the folder that holds everything, one sub-folder per cluster.
func (p *Planes) Dir() string { return p.folder.path }

// Stop ends all components, waits until they are gone, and removes the folder if it was a temporary one. Components
// that ignore SIGTERM are killed after a few seconds. Further calls return the first one's result.
func (p *Planes) Stop() error { return p.stop() }

func (p *Planes) stopAll() error {
	failures := make([]error, len(p.planes))
	var group sync.WaitGroup
	for i, plane := range p.planes {
		group.Go(func() { failures[i] = plane.stop() })
	}
	group.Wait()
	failures = append(failures, rights.Leave(p.folder.path))
	if err := errors.Join(append(failures, p.data.close(), p.folder.close())...); err != nil {
		return fmt.Errorf("stopping control planes: %w", err)
	}
	return nil
}
