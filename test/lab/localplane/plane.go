package localplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/tenure-dev/tenure/test/lab/rights"
)

const (
	adminKubeconfig = "admin.kubeconfig"
	// readyTimeout bounds the wait for one component on a busy machine; a dead one is noticed at once.
	readyTimeout = 90 * time.Second
	// probeTimeout bounds one question whether a component is ready.
	probeTimeout = 2 * time.Second
	// pollEvery is short, because start-up time is what every test run pays.
	pollEvery = 20 * time.Millisecond
)

// Plane is one running control plane.
type Plane struct {
	config      ClusterConfig
	binary      string
	dir         string
	dataDir     string // of etcd: below /dev/shm only if TmpfsData was asked for and possible
	noFsync     bool
	garbageFrom int64 // bytes, 0: GOGC decides
	pki         *pki
	progress    func(format string, args ...any)
	onDeath     func(error)
	pickPorts   func(n int) ([]int, error)

	// operation serialises starting and stopping of components. It is held for seconds, while processes come
	// and go: nothing else may wait for it.
	operation sync.Mutex
	// mu guards what follows. Never held while waiting for anything.
	mu        sync.Mutex
	port      int
	arguments []string // of the API server, as it runs or would run
	etcd      *Process
	apiServer *Process   // nil while stopped
	second    *Second    // nil if there is none
	helpers   []*Process // controller manager, scheduler, kwok
	restored  []time.Time
}

// Name is the cluster's name.
func (p *Plane) Name() string { return p.config.Name }

// Dir is the cluster's folder.
func (p *Plane) Dir() string { return p.dir }

// LogDir holds one log per component: etcd.log, kube-apiserver.log, ...
func (p *Plane) LogDir() string { return filepath.Join(p.dir, "logs") }

// AuditLog is the API server's audit log, one JSON object (audit.k8s.io/v1 Event) per line, appended to across
// restarts. A request is in it before its response is complete.
func (p *Plane) AuditLog() string { return filepath.Join(p.dir, "audit.log") }

// url is the API server's address, the same for the life of the plane.
func (p *Plane) url() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return fmt.Sprintf("https://127.0.0.1:%d", p.port)
}

// start brings the whole plane up.
func (p *Plane) start(ctx context.Context) error {
	p.operation.Lock()
	defer p.operation.Unlock()
	began := time.Now()
	if err := p.prepare(); err != nil {
		return err
	}
	if err := p.startEtcd(ctx); err != nil {
		return err
	}
	if err := p.startAPIServerOnFreePort(ctx); err != nil {
		return err
	}
	p.progress("%s: API server ready after %s at %s", p.config.Name, since(began), p.url())
	if !p.config.Workload {
		return nil
	}
	if err := p.startWorkload(ctx); err != nil {
		return err
	}
	p.progress("%s: %d nodes ready after %s", p.config.Name, p.nodes(), since(began))
	return nil
}

// prepare lays out the cluster's folder.
func (p *Plane) prepare() error {
	for _, folder := range []string{p.dir, p.LogDir(), p.dataDir} {
		if err := os.MkdirAll(folder, 0o700); err != nil {
			return fmt.Errorf("making the folder of cluster %s: %w", p.config.Name, withHint(err))
		}
	}
	for file, content := range map[string][]byte{"audit-policy.yaml": rights.AuditPolicy(auditPolicy),
		"kwok.yaml": kwokConfig} {
		if err := os.WriteFile(filepath.Join(p.dir, file), content, 0o600); err != nil {
			return fmt.Errorf("writing the configuration of cluster %s: %w", p.config.Name, withHint(err))
		}
	}
	var err error
	if p.pki, err = createPKI(filepath.Join(p.dir, "pki")); err != nil {
		return fmt.Errorf("making the certificates of cluster %s: %w", p.config.Name, withHint(err))
	}
	return nil
}

func (p *Plane) startEtcd(ctx context.Context) error {
	// A socket left by an etcd that was killed, before a restore, would look like a ready one.
	socket := filepath.Join(p.dir, etcdSocket)
	if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("removing a stale socket: %w", err)
	}
	etcd, err := p.startProcess("etcd", etcdArgs(p.config.Name, p.dataDir, p.noFsync))
	if err != nil {
		return err
	}
	p.mu.Lock()
	p.etcd = etcd
	p.mu.Unlock()
	err = p.await(ctx, func(context.Context) error {
		_, err := os.Stat(socket)
		return err
	}, etcd)
	if err != nil {
		return err
	}
	etcd.supervise(p.onDeath)
	return nil
}

// startAPIServerOnFreePort finds the plane's port for life.
func (p *Plane) startAPIServerOnFreePort(ctx context.Context) error {
	return OnPorts(1, p.pickPorts, func(ports []int) error {
		p.mu.Lock()
		p.port, p.arguments = ports[0], apiServerArgs(p.config, ports[0])
		p.mu.Unlock()
		if err := p.writeKubeconfigs(); err != nil {
			return err
		}
		return p.startAPIServer(ctx)
	})
}

// startAPIServer runs the API server and waits until it is ready.
func (p *Plane) startAPIServer(ctx context.Context) error {
	p.mu.Lock()
	arguments := slices.Clone(p.arguments)
	p.mu.Unlock()
	server, err := p.startProcess("kube-apiserver", arguments)
	if err != nil {
		return err
	}
	p.mu.Lock()
	p.apiServer = server
	etcd := p.etcd
	p.mu.Unlock()
	return p.awaitAPIServer(ctx, p.RESTConfig(), etcd, server)
}

// awaitAPIServer waits until an API server is ready, and then watches over it.
func (p *Plane) awaitAPIServer(ctx context.Context, config *rest.Config, etcd, server *Process) error {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("making a client for cluster %s: %w", p.config.Name, err)
	}
	err = p.await(ctx, func(ctx context.Context) error {
		return client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	}, etcd, server)
	if err == nil {
		server.supervise(p.onDeath)
	}
	return err
}

// await is Await for components of the plane.
func (p *Plane) await(ctx context.Context, ready func(context.Context) error, components ...*Process) error {
	if err := Await(ctx, ready, components...); err != nil {
		return fmt.Errorf("cluster %s: %w", p.config.Name, err)
	}
	return nil
}

// Await polls until ready returns nil, one of the processes has ended, or it takes too long; the error has the end of a
// log then. Causes come before effects among the processes; the last is the one waited for.
func Await(ctx context.Context, ready func(context.Context) error, processes ...*Process) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	for {
		probe, done := context.WithTimeout(ctx, probeTimeout)
		missing := ready(probe)
		done()
		if missing == nil {
			return nil
		}
		for _, p := range processes {
			if !p.Ended() {
				continue
			}
			ended := fmt.Errorf("%s ended while starting: %s", p.name, p.state)
			if strings.Contains(tail(p.log()), syscall.EADDRINUSE.Error()) {
				ended = fmt.Errorf("%w: %w", errPortTaken, ended)
			}
			return p.withTail(ended)
		}
		select {
		case <-ticker.C:
			continue
		case <-ctx.Done():
		}
		last := processes[len(processes)-1]
		err := fmt.Errorf("waiting for %s: %w (last: %w)", last.name, ctx.Err(), missing)
		if errors.Is(ctx.Err(), context.Canceled) { // the caller's wish: the log has nothing to say about it
			return err
		}
		return last.withTail(err)
	}
}

// stop ends the components: first those that talk to the API server together with it, then etcd. The other way
// round an API server waits for its etcd instead of ending.
func (p *Plane) stop() error {
	p.operation.Lock()
	defer p.operation.Unlock()
	p.mu.Lock()
	clients, etcd := slices.Clone(p.helpers), p.etcd
	if p.apiServer != nil {
		clients = append(clients, p.apiServer)
	}
	second := p.second
	p.helpers, p.apiServer, p.etcd, p.second = nil, nil, nil, nil
	p.mu.Unlock()
	err := stopAll(clients)
	if second != nil {
		err = errors.Join(err, second.stop())
	}
	if etcd != nil {
		err = errors.Join(err, etcd.Stop())
	}
	return err
}

// stopAll stops processes at the same time.
func stopAll(processes []*Process) error {
	failures := make([]error, len(processes))
	var group sync.WaitGroup
	for i, component := range processes {
		group.Go(func() { failures[i] = component.Stop() })
	}
	group.Wait()
	return errors.Join(failures...)
}

// Pause freezes the API server (SIGSTOP): it accepts connections and never answers. Resume wakes it.
func (p *Plane) Pause() error { return p.signalAPIServer(syscall.SIGSTOP) }

// Resume undoes Pause; everything that was sent meanwhile is then served.
func (p *Plane) Resume() error { return p.signalAPIServer(syscall.SIGCONT) }

func (p *Plane) signalAPIServer(signal syscall.Signal) error {
	p.mu.Lock()
	server := p.apiServer
	p.mu.Unlock()
	if server == nil || server.Ended() {
		return fmt.Errorf("sending %s to the API server of cluster %s: it is not running", signal, p.config.Name)
	}
	return server.signal(signal)
}

// StopAPIServer ends the API server; etcd and the other components go on. Clients see refused connections.
func (p *Plane) StopAPIServer() error {
	p.operation.Lock()
	defer p.operation.Unlock()
	return p.stopAPIServer()
}

func (p *Plane) stopAPIServer() error {
	p.mu.Lock()
	server := p.apiServer
	p.apiServer = nil
	p.mu.Unlock()
	if server == nil {
		return nil
	}
	return server.Stop()
}

// StartAPIServer starts a stopped API server again, on its old port and with its last flags, and waits until it is
// ready. Starting a running one does nothing.
func (p *Plane) StartAPIServer(ctx context.Context) error {
	p.operation.Lock()
	defer p.operation.Unlock()
	p.mu.Lock()
	running := p.apiServer != nil && !p.apiServer.Ended()
	p.mu.Unlock()
	if running {
		return nil
	}
	return p.startAPIServer(ctx)
}

// RestartAPIServer stops the API server and starts it on the same port. If change is not nil it is given the flags
// and returns the new ones, which also hold for later starts; the port is not its to change.
func (p *Plane) RestartAPIServer(ctx context.Context, change func(args []string) []string) error {
	p.operation.Lock()
	defer p.operation.Unlock()
	if err := p.stopAPIServer(); err != nil {
		return err
	}
	if change != nil {
		p.mu.Lock()
		arguments := slices.Clone(p.arguments)
		p.mu.Unlock()
		arguments = change(arguments)
		p.mu.Lock()
		p.arguments = arguments
		p.mu.Unlock()
	}
	return p.startAPIServer(ctx)
}

func since(began time.Time) time.Duration { return time.Since(began).Round(10 * time.Millisecond) }
