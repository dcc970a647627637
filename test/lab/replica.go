package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/procfs"

	"github.com/tenure-dev/tenure/test/lab/localplane"
)

// Program is how to start a process.
type Program struct {
	Name, Binary string
	// LogPath is the file that its output is appended to.
	LogPath string
	// Addresses is how many free addresses it listens on; Args gets them. Args may be called again with
	// other addresses.
	Addresses int
	Args      func(addresses []string) []string
	// Environment is added to ours, less what would set a replica's flags, clusters or tracing behind our back.
	Environment []string
}

// Replica is one process of tenure, or of a program that stands in for one. A replica that is started again is another
// one with the same name. It ends when this process does, however that ends. It is safe for concurrent use.
type Replica struct {
	Name    string
	LogPath string
	Log     *Log
	Started time.Time

	program Program
	done    chan struct{} // closed once the process has been reaped; command is its last one then

	mu        sync.Mutex // guards all below; never held while waiting
	command   *exec.Cmd
	addresses []string
	killed    time.Time
	asked     bool // to end, by any signal
	tries     int
}

// portTries is how often a process is started that finds its port taken.
const portTries = 4

// ErrStillRuns says that a process didn't end in time.
var ErrStillRuns = errors.New("still runs")

// StartProgram starts a process. If it ends because another program was faster to listen on its port, it is started
// again with another port.
func StartProgram(p Program) (*Replica, error) {
	r := &Replica{
		Name: p.Name, LogPath: p.LogPath, Log: &Log{path: p.LogPath}, Started: time.Now(), program: p,
		done: make(chan struct{}),
	}
	if err := r.launch(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", p.Name, err)
	}
	go func() {
		defer close(r.done)
		for r.wait(); r.lostItsPort(); r.wait() {
			if r.launch() != nil {
				return // how the last one ended is the reason
			}
		}
	}()
	return r, nil
}

// launch starts the process, unless it has been asked to end.
func (r *Replica) launch() error {
	file, err := os.OpenFile(r.LogPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("opening its log: %w", err)
	}
	defer file.Close() // the child has its own copy
	addresses, err := localplane.FreeAddresses(r.program.Addresses)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.asked {
		return errors.New("it was asked to end")
	}
	command := exec.Command(r.program.Binary, r.program.Args(addresses)...)
	command.Stdout, command.Stderr = file, file
	command.Env = append(ownEnvironment(os.Environ()), r.program.Environment...)
	if err := localplane.StartChild(command); err != nil {
		return err
	}
	r.command, r.addresses = command, addresses
	r.tries++
	return nil
}

func (r *Replica) wait() {
	r.mu.Lock()
	command := r.command
	r.mu.Unlock()
	_ = command.Wait() // how it ended, its state says
}

func (r *Replica) lostItsPort() bool {
	r.mu.Lock()
	again := !r.asked && r.tries < portTries && !r.command.ProcessState.Success()
	r.mu.Unlock()
	return again && strings.Contains(r.lastLine(), syscall.EADDRINUSE.Error())
}

// ownEnvironment is an environment without the variables that would set a replica's flags, its clusters or its tracing.
func ownEnvironment(environment []string) []string {
	return slices.DeleteFunc(slices.Clone(environment), func(entry string) bool {
		return slices.ContainsFunc([]string{"TENURE_", "OTEL_", "KUBECONFIG="},
			func(p string) bool { return strings.HasPrefix(entry, p) })
	})
}

// Address is one of those it listens on.
func (r *Replica) Address(i int) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.addresses[i]
}

// Metrics reads what it counts, over the first of its addresses.
func (r *Replica) Metrics(ctx context.Context) (Metrics, error) {
	m, err := scrape(ctx, r.Address(0))
	if err != nil {
		return nil, fmt.Errorf("replica %s: %w", r.Name, err)
	}
	return m, nil
}

// PID is that of its process.
func (r *Replica) PID() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.command.Process.Pid
}

func (r *Replica) signal(s syscall.Signal) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.command.Process.Signal(s); err != nil {
		return fmt.Errorf("sending %s to %s: %w", s, r.Name, err)
	}
	return nil
}

// ask notes that the process was asked to end, and returns the time.
func (r *Replica) ask(killed bool) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	r.asked = true
	if killed && r.killed.IsZero() {
		r.killed = now
	}
	return now
}

// Kill is a crash: SIGKILL. It returns the instant before, and after the process is gone.
func (r *Replica) Kill() time.Time {
	now := r.ask(true)
	_ = r.signal(syscall.SIGKILL) // one that has ended needs none
	<-r.done
	return now
}

// Terminate is a clean exit: SIGTERM. It returns the instant before, and doesn't wait.
func (r *Replica) Terminate() time.Time {
	now := r.ask(false)
	_ = r.signal(syscall.SIGTERM) // as in Kill
	return now
}

// Leave asks the process to end, and kills it if it hasn't after a while or when the context ends: then that is the
// error.
func (r *Replica) Leave(ctx context.Context, within time.Duration) error {
	r.Terminate()
	ctx, cancel := context.WithTimeoutCause(ctx, within, fmt.Errorf("%s did not end within %v of SIGTERM", r.Name, within))
	defer cancel()
	select {
	case <-r.done:
		return nil
	case <-ctx.Done():
		r.Kill()
		return context.Cause(ctx)
	}
}

// Pause freezes the process (SIGSTOP), Resume wakes it.
func (r *Replica) Pause() error { return r.signal(syscall.SIGSTOP) }

// Resume undoes Pause.
func (r *Replica) Resume() error { return r.signal(syscall.SIGCONT) }

// Stopped reports whether the kernel says that the process is stopped, as by Pause.
func (r *Replica) Stopped() (bool, error) {
	process, err := procfs.NewProc(r.PID())
	if err != nil {
		return false, fmt.Errorf("looking at the process of %s: %w", r.Name, err)
	}
	stat, err := process.Stat()
	if err != nil {
		return false, fmt.Errorf("looking at the process of %s: %w", r.Name, err)
	}
	return stat.State == "T", nil
}

// KilledAt is when it was killed; zero if it wasn't.
func (r *Replica) KilledAt() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.killed
}

// Asked reports whether it was asked to end, or killed.
func (r *Replica) Asked() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.asked
}

// Ended reports whether the process is gone.
func (r *Replica) Ended() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

// State is how the process ended; nil while it runs.
func (r *Replica) State() *os.ProcessState {
	if !r.Ended() {
		return nil
	}
	return r.command.ProcessState
}

// Wait waits for the process to end, and returns an error unless it ended with exit code 0.
func (r *Replica) Wait(within time.Duration) error {
	select {
	case <-r.done:
	case <-time.After(within):
		return fmt.Errorf("replica %s %v after it should have ended: %w (log: %s)", r.Name, within, ErrStillRuns, r.LogPath)
	}
	if state := r.State(); !state.Success() {
		return fmt.Errorf("replica %s: %v (log: %s)", r.Name, state, r.LogPath)
	}
	return nil
}

// DiedByItself returns an error, with the last line of the log, if the process ended without having been asked to.
func (r *Replica) DiedByItself() error {
	if !r.Ended() || r.Asked() {
		return nil
	}
	return fmt.Errorf("replica %s ended by itself (%v, log %s): %s", r.Name, r.State(), r.LogPath, r.lastLine())
}

// lastLine is where a program that fails says why.
func (r *Replica) lastLine() string {
	lines, err := r.Log.Lines()
	switch {
	case err != nil:
		return err.Error()
	case len(lines) == 0:
		return "its log is empty"
	}
	return lines[len(lines)-1].Text
}

// StopAll lets replicas leave in order, and kills those that take longer than a time.
func StopAll(replicas []*Replica, within time.Duration) {
	var all sync.WaitGroup
	for _, r := range replicas {
		all.Go(func() { _ = r.Leave(context.Background(), within) }) // one that is killed has had its time
	}
	all.Wait()
}
