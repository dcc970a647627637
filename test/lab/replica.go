package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/tenure-dev/tenure/test/lab/faultproxy"
	"github.com/tenure-dev/tenure/test/lab/localplane"
)

// Replica is one process of tenure. A replica that is started again is another one with the same name.
type Replica struct {
	Name string
	// LogPath is the file of its log; Log reads it.
	LogPath string
	Log     *Log
	// Metrics is the address of its /metrics.
	Metrics string

	command *exec.Cmd
	done    chan struct{} // closed once the process has been reaped
	killed  atomic.Pointer[time.Time]
	told    atomic.Pointer[time.Time]
	paused  atomic.Bool
}

// StartReplica starts a process. Flags are added to its command line.
func (f *Fleet) StartReplica(name string, flags ...string) (*Replica, error) {
	kubeconfig, err := f.homeKubeconfig(name)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	run := 1
	for _, r := range f.replicas {
		if r.Name == name {
			run++
		}
	}
	f.mu.Unlock()
	r := &Replica{Name: name, LogPath: filepath.Join(f.Planes.Dir(), "replicas", fmt.Sprintf("%s.%d.log", name, run)), done: make(chan struct{})}
	file, err := os.Create(r.LogPath)
	if err != nil {
		return nil, fmt.Errorf("opening the log of replica %s: %w", name, err)
	}
	defer file.Close() // the child has its own copy
	addresses, err := localplane.FreeAddresses(1)
	if err != nil {
		return nil, fmt.Errorf("looking for a port for replica %s: %w", name, err)
	}
	r.Metrics = addresses[0]
	r.Log = &Log{path: r.LogPath}
	args := []string{
		"--home-kubeconfig", kubeconfig, "--namespace", Namespace, "--replica", name,
		"--lease-duration", f.options.LeaseDuration.String(),
		"--shards-per-cluster", fmt.Sprint(f.options.ShardsPerCluster),
		"--metrics-bind-address", r.Metrics, "--health-probe-bind-address", "0",
	}
	r.command = exec.Command(f.options.Tenure, append(args, flags...)...)
	r.command.Stdout, r.command.Stderr = file, file
	r.command.Env = ReplicaEnvironment(os.Environ())
	if err := localplane.StartChild(r.command); err != nil {
		return nil, fmt.Errorf("starting replica %s: %w", name, err)
	}
	go func() {
		_ = r.command.Wait() // it ends with the process, whose state says how
		close(r.done)
	}()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.replicas = append(f.replicas, r)
	return r, nil
}

// MakeHomeProxy starts the proxy between a replica and home before the replica itself is started, so that it is hurt
// from its first request on.
func (f *Fleet) MakeHomeProxy(name string) error {
	_, err := f.homeKubeconfig(name)
	return err
}

// homeKubeconfig writes the replica's kubeconfig, through a proxy of its own, when it is first asked for.
func (f *Fleet) homeKubeconfig(name string) (string, error) {
	path := filepath.Join(f.Planes.Dir(), "replicas", name+".kubeconfig")
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return "", fmt.Errorf("making a folder for the replicas: %w", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	content, err := f.accountKubeconfig(ctx, Home)
	if err != nil {
		return "", err
	}
	if !f.options.Direct {
		proxy, err := faultproxy.Start(faultproxy.Config{Upstream: f.Planes.Cluster(Home).RESTConfig(), Seed: f.options.Seed})
		if err != nil {
			return "", fmt.Errorf("starting the proxy between %s and home: %w", name, err)
		}
		f.mu.Lock()
		f.homes[name] = proxy
		f.mu.Unlock()
		if content, err = proxy.Kubeconfig(content); err != nil {
			return "", err
		}
	}
	if err := os.WriteFile(path, content, 0o600); err != nil {
		_ = os.Remove(path) // half of one would be taken for whole the next time
		return "", fmt.Errorf("writing the kubeconfig of replica %s: %w", name, err)
	}
	return path, nil
}

// Replicas are all processes that were ever started.
func (f *Fleet) Replicas() []*Replica {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.replicas)
}

// Alive are the processes that run and weren't told to end.
func (f *Fleet) Alive() []*Replica {
	return slices.DeleteFunc(f.Replicas(), func(r *Replica) bool { return r.Ended() || r.told.Load() != nil || r.killed.Load() != nil })
}

// Kill is a crash: SIGKILL. It returns the instant before, and after the process is gone.
func (r *Replica) Kill() time.Time {
	now := time.Now()
	r.killed.CompareAndSwap(nil, &now)
	_ = r.command.Process.Kill() // one that has ended is what we want
	<-r.done
	return now
}

// Terminate is a clean exit: SIGTERM. It returns the instant before, and doesn't wait.
func (r *Replica) Terminate() time.Time {
	now := time.Now()
	r.told.CompareAndSwap(nil, &now)
	_ = r.command.Process.Signal(syscall.SIGTERM) // one that has ended is what we want
	return now
}

// Pause freezes the process (SIGSTOP), Resume wakes it.
func (r *Replica) Pause() {
	r.paused.Store(true)
	_ = r.command.Process.Signal(syscall.SIGSTOP)
}

// Resume undoes Pause.
func (r *Replica) Resume() {
	r.paused.Store(false)
	_ = r.command.Process.Signal(syscall.SIGCONT)
}

// KilledAt is when it was killed; zero if it wasn't.
func (r *Replica) KilledAt() time.Time {
	if at := r.killed.Load(); at != nil {
		return *at
	}
	return time.Time{}
}

// Ended tells whether the process is gone.
func (r *Replica) Ended() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

// ErrStillRuns says that a process didn't end in time.
var ErrStillRuns = errors.New("still runs")

// Wait waits for the process to end, and returns an error unless it ended with exit code 0.
func (r *Replica) Wait(within time.Duration) error {
	select {
	case <-r.done:
	case <-time.After(within):
		return fmt.Errorf("replica %s %v after it should have ended: %w (log: %s)", r.Name, within, ErrStillRuns, r.LogPath)
	}
	if state := r.command.ProcessState; !state.Success() {
		return fmt.Errorf("replica %s: %v (log: %s)", r.Name, state, r.LogPath)
	}
	return nil
}

// DiedByItself is an error if the process ended though nobody asked it to.
func (r *Replica) DiedByItself() error {
	if !r.Ended() || r.killed.Load() != nil || r.told.Load() != nil {
		return nil
	}
	return fmt.Errorf("replica %s ended by itself: %v (log: %s)", r.Name, r.command.ProcessState, r.LogPath)
}
