package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/tenure-dev/tenure/test/lab"
	"github.com/tenure-dev/tenure/test/lab/localplane"
)

// leaveWithin is how long replicas may take to leave in order at the end of the demo.
const leaveWithin = 3 * time.Second

// replica is one process of bin/tenure.
type replica struct {
	name    string
	logPath string
	metrics string // address
	command *exec.Cmd
	done    chan struct{} // closed once the process has been reaped; outcome is set before
	outcome string
	// killedAt is when we killed it, unset before; leaving says that we asked it to end.
	killedAt atomic.Pointer[time.Time]
	leaving  atomic.Bool
}

// startReplica starts a process with the rights of the service account.
func startReplica(f *fleet, name string) (*replica, error) {
	folder := filepath.Join(f.planes.Dir(), "replicas")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, fmt.Errorf("making a folder for the replicas' logs: %w", err)
	}
	addresses, err := localplane.FreeAddresses(2)
	if err != nil {
		return nil, fmt.Errorf("looking for free ports for replica %s: %w", name, err)
	}
	r := &replica{name: name, logPath: filepath.Join(folder, name+".log"), metrics: addresses[0], done: make(chan struct{})}
	logFile, err := os.OpenFile(r.logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the log of replica %s: %w", name, err)
	}
	defer logFile.Close() // the child has its own copy
	r.command = exec.Command(f.settings.tenure,
		"--home-kubeconfig", f.homePath, "--namespace", namespace, "--replica", name,
		"--lease-duration", f.settings.leaseDuration.String(), "--shards-per-cluster", fmt.Sprint(shardsPerCluster),
		"--deployment-source", homeCluster,
		"--metrics-bind-address", addresses[0], "--health-probe-bind-address", addresses[1])
	r.command.Stdout, r.command.Stderr = logFile, logFile
	r.command.Env = append(lab.ReplicaEnvironment(os.Environ()), f.jaeger.Environment()...)
	r.command.Env = append(r.command.Env, "OTEL_TRACES_SAMPLER=always_on")
	if err := localplane.StartChild(r.command); err != nil {
		return nil, fmt.Errorf("starting replica %s: %w", name, err)
	}
	go func() {
		_ = r.command.Wait() // it ends with the process; stop waits for it through done
		r.outcome = r.command.ProcessState.String()
		close(r.done)
	}()
	return r, nil
}

// kill is a crash: the replica gets no chance to hand anything over.
func (r *replica) kill() error {
	now := time.Now()
	r.killedAt.Store(&now)
	if err := r.command.Process.Kill(); err != nil {
		return fmt.Errorf("killing replica %s: %w", r.name, err)
	}
	<-r.done
	return nil
}

func (r *replica) pid() int { return r.command.Process.Pid }

func (r *replica) ended() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

// complaint is why the replica ended although nobody asked it to; nil if it didn't.
func (r *replica) complaint() error {
	if r.killedAt.Load() != nil || r.leaving.Load() || !r.ended() {
		return nil
	}
	content, err := os.ReadFile(r.logPath)
	if err != nil {
		return fmt.Errorf("replica %s ended by itself (%s), and its log can't be read: %w", r.name, r.outcome, err)
	}
	return fmt.Errorf("replica %s ended by itself (%s): %s", r.name, r.outcome, lastLine(string(content)))
}

// lostItsPort says that the replica ended because somebody was faster to listen on a port that was free before.
func (r *replica) lostItsPort() bool {
	err := r.complaint()
	return err != nil && strings.Contains(err.Error(), syscall.EADDRINUSE.Error())
}

// lastLine is where a program that fails says why.
func lastLine(log string) string {
	log = strings.TrimSpace(log)
	return log[strings.LastIndexByte(log, '\n')+1:]
}

// stopReplicas lets all of them leave in order, and kills those that take too long.
func stopReplicas(replicas []*replica) error {
	for _, r := range replicas {
		r.leaving.Store(true)
		_ = r.command.Process.Signal(syscall.SIGTERM) // one that has ended is what we want
	}
	late := time.NewTimer(leaveWithin)
	defer late.Stop()
	var errs []error
	for _, r := range replicas {
		select {
		case <-r.done:
			continue
		case <-late.C:
			late.Reset(0) // the others are late too
		}
		if err := r.command.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
			errs = append(errs, fmt.Errorf("killing replica %s: %w", r.name, err))
			continue
		}
		<-r.done
	}
	return errors.Join(errs...)
}

// ask reads the replica's metrics.
func (r *replica) ask(ctx context.Context) (figures, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+r.metrics+"/metrics", nil)
	if err != nil {
		return figures{}, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return figures{}, err
	}
	defer response.Body.Close()
	return readFigures(response.Body)
}
