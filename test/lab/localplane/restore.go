package localplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"
)

// Snapshot saves what the plane's etcd holds to a file, as `etcdctl snapshot save` does.
func (p *Plane) Snapshot(ctx context.Context, to string) error {
	to, err := filepath.Abs(to)
	if err != nil {
		return fmt.Errorf("saving a snapshot of cluster %s: %w", p.config.Name, err)
	}
	return p.tool(ctx, "etcdctl", "--endpoints=unix://"+etcdSocket, "snapshot", "save", to)
}

// Restore replaces what the plane's etcd holds by a snapshot, as an administrator would: API servers and etcd stop,
// `etcdutl snapshot restore` makes new data, and all start again at their old addresses with their old certificates.
// bump is by how much the revision is raised above the snapshot's; it is then also marked as compacted. 0 leaves it.
//
// The audit logs go on. Restored returns when their history was replaced.
func (p *Plane) Restore(ctx context.Context, snapshot string, bump uint64) error {
	p.operation.Lock()
	defer p.operation.Unlock()
	snapshot, err := filepath.Abs(snapshot)
	if err != nil {
		return fmt.Errorf("restoring cluster %s: %w", p.config.Name, err)
	}
	p.mu.Lock()
	clients, second, etcd := slices.Clone(p.helpers), p.second, p.etcd
	if p.apiServer != nil {
		clients = append(clients, p.apiServer)
	}
	if second != nil {
		clients = append(clients, second.server)
	}
	p.helpers, p.apiServer = nil, nil
	p.mu.Unlock()
	if err := errors.Join(stopAll(clients), etcd.Stop()); err != nil {
		return fmt.Errorf("restoring cluster %s: %w", p.config.Name, err)
	}
	p.mu.Lock()
	p.restored = append(p.restored, time.Now())
	p.mu.Unlock()
	if err := os.RemoveAll(p.dataDir); err != nil {
		return fmt.Errorf("restoring cluster %s: %w", p.config.Name, err)
	}
	args := append([]string{"etcdutl", "snapshot", "restore", snapshot, "--data-dir=" + p.dataDir},
		etcdMember(p.config.Name)...)
	if bump > 0 {
		args = append(args, "--bump-revision="+strconv.FormatUint(bump, 10), "--mark-compacted")
	}
	if err := p.tool(ctx, args...); err != nil {
		return err
	}
	if err := p.startEtcd(ctx); err != nil {
		return err
	}
	var servers sync.WaitGroup
	var secondErr error
	if second != nil {
		p.mu.Lock()
		etcd = p.etcd
		p.mu.Unlock()
		servers.Go(func() { secondErr = second.run(ctx, etcd) })
	}
	err = p.startAPIServer(ctx)
	servers.Wait()
	if err := errors.Join(err, secondErr); err != nil {
		return err
	}
	if p.config.Workload {
		return p.startWorkload(ctx)
	}
	return nil
}

// Restored returns the times at which the plane's history was replaced by a snapshot's, in order. No API server ran
// at those moments.
func (p *Plane) Restored() []time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.restored)
}

// tool runs one of etcd's tools in the plane's folder.
func (p *Plane) tool(ctx context.Context, args ...string) error {
	c := exec.CommandContext(ctx, p.binary, args...)
	c.Dir = p.dir
	c.Env = childEnvironment(p.dir, 0)
	if output, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("cluster %s: %s %s %s: %w: %s", p.config.Name, args[0], args[1], args[2], err, tail(string(output)))
	}
	return nil
}
