package run

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/tenure-dev/tenure/bench/record"
	"github.com/tenure-dev/tenure/test/lab"
	"github.com/tenure-dev/tenure/test/lab/localplane"
)

// process is one replica, or the floor.
type process struct {
	name    string // of the replica; a restarted one keeps it
	metrics string // address, "" if it has none
	pprof   string // the same, of its profiles
	log     string // paths
	samples string
	command *exec.Cmd
	started time.Time
	asked   atomic.Bool   // we asked it to end, or killed it
	done    chan struct{} // closed once it is reaped; what is below is set before
	outcome string
	used    record.Use
}

// startProcess starts a program that dies with this one. The environment is added to ours.
func startProcess(name, binary, log string, args []string, environment ...string) (*process, error) {
	p := &process{name: name, log: log, done: make(chan struct{}), started: time.Now()}
	file, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the log of %s: %w", name, err)
	}
	defer file.Close() // the child has its own copy
	p.command = exec.Command(binary, args...)
	p.command.Stdout, p.command.Stderr = file, file
	p.command.Env = append(lab.ReplicaEnvironment(os.Environ()), environment...)
	if err := localplane.StartChild(p.command); err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	go func() {
		_ = p.command.Wait() // it ends with the process; whoever stops it waits for done
		state := p.command.ProcessState
		p.outcome = state.String()
		p.used.CPU = state.UserTime() + state.SystemTime()
		if usage, ok := state.SysUsage().(*syscall.Rusage); ok {
			p.used.Peak = usage.Maxrss << 10
			p.used.RSS = p.used.Peak
		}
		close(p.done)
	}()
	return p, nil
}

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// use is what it has used so far, also after its end.
func (p *process) use() (record.Use, error) {
	if p.ended() {
		return p.used, nil
	}
	used, err := record.UseOf(p.command.Process.Pid)
	if err != nil && p.ended() {
		return p.used, nil
	}
	return used, err
}

// complaint is why it ended although nobody asked it to; nil if it didn't.
func (p *process) complaint() error {
	if !p.ended() || p.asked.Load() {
		return nil
	}
	content, err := os.ReadFile(p.log)
	if err != nil {
		return fmt.Errorf("%s ended by itself (%s), and its log can't be read: %w", p.name, p.outcome, err)
	}
	log := strings.TrimSpace(string(content))
	return fmt.Errorf("%s ended by itself (%s): %s", p.name, p.outcome, log[strings.LastIndexByte(log, '\n')+1:])
}

// kill is a crash.
func (p *process) kill() error {
	p.asked.Store(true)
	if err := p.command.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("killing %s: %w", p.name, err)
	}
	<-p.done
	return nil
}

// leave asks it to end, and kills it if it doesn't.
func (p *process) leave(ctx context.Context, within time.Duration) error {
	p.asked.Store(true)
	_ = p.command.Process.Signal(syscall.SIGTERM) // one that has ended is what we want
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
	case <-timer.C:
	}
	if err := p.kill(); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return fmt.Errorf("%s did not end within %v of SIGTERM", p.name, within)
}
