package localplane

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	// stopGrace is how long a component may take to end after SIGTERM. An API server that lost its etcd, for one,
	// takes minutes.
	stopGrace = 5 * time.Second
	// tailBytes of a component's log go into the error that reports its end.
	tailBytes = 2000
	// garbagePercent is the components' GOGC, three times Go's default. They share the processors with what is tested or
	// measured on them, as in a cluster they don't, and an API server spends a seventh of its time collecting garbage.
	garbagePercent = 300
)

// Process is one running program: a component, or one that runs beside the planes. It is safe for concurrent use.
type Process struct {
	name    string
	logPath string
	cmd     *exec.Cmd
	// wanted is false once we asked the process to end.
	wanted atomic.Bool
	// done is closed when the process has been reaped; state is set before.
	done  chan struct{}
	state string
}

// startProcess runs "binary component args..." in the plane's folder, with its output appended to logs/component.log
// there.
func (p *Plane) startProcess(component string, args []string) (*Process, error) {
	return p.startProcessAs(component, component, args)
}

// startProcessAs is startProcess for a component that there are several of: name is what tells them apart.
func (p *Plane) startProcessAs(component, name string, args []string) (*Process, error) {
	cmd := exec.Command(p.binary, append([]string{component}, args...)...)
	cmd.Dir = p.dir
	cmd.Env = childEnvironment(p.dir, p.garbageFrom)
	return StartProcess(name, filepath.Join(p.dir, "logs", name+".log"), cmd)
}

// StartProcess starts a program, as StartChild does, with its output appended to a log. Whoever starts it stops it.
func StartProcess(name, logPath string, cmd *exec.Cmd) (*Process, error) {
	log, err := os.OpenFile(logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the log of %s: %w", name, withHint(err))
	}
	defer log.Close() // the child has its own copy
	cmd.Stdout, cmd.Stderr = log, log
	if err := StartChild(cmd); err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, withHint(err))
	}
	started := &Process{name: name, logPath: logPath, cmd: cmd, done: make(chan struct{})}
	started.wanted.Store(true)
	go func() {
		_ = cmd.Wait() // it ends with every process: stop and Stop wait for it through done
		started.state = cmd.ProcessState.String()
		close(started.done)
	}()
	return started, nil
}

// supervise calls onDeath once if the process ends without having been stopped, or has done so already. Before
// supervise is called, its starter has to notice its end.
func (p *Process) supervise(onDeath func(error)) {
	go func() {
		<-p.done
		if p.wanted.Load() {
			onDeath(p.withTail(fmt.Errorf("%s ended by itself: %s", p.name, p.state)))
		}
	}()
}

// childEnvironment is deliberately small: ETCD_*, KUBECONFIG or a ~/.kwok of the user must not reach the components.
func childEnvironment(folder string, garbageFrom int64) []string {
	environment := []string{"HOME=" + folder, "KWOK_WORKDIR=" + folder, "PATH=" + os.Getenv("PATH"),
		"TMPDIR=" + os.TempDir()}
	set := map[string]string{"GOGC": strconv.Itoa(garbagePercent)}
	for _, name := range []string{"GOMAXPROCS", "GOMEMLIMIT", "GOGC", "GODEBUG", "TZ"} {
		if value, ok := os.LookupEnv(name); ok {
			set[name] = value
		}
	}
	if garbageFrom > 0 {
		set["GOGC"], set["GOMEMLIMIT"] = "off", strconv.FormatInt(garbageFrom, 10)
	}
	for _, name := range slices.Sorted(maps.Keys(set)) {
		environment = append(environment, name+"="+set[name])
	}
	return environment
}

// signal sends a signal to the process; it is no error if that has ended already.
func (p *Process) signal(signal syscall.Signal) error {
	err := p.cmd.Process.Signal(signal)
	if err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("sending %s to %s (pid %d): %w", signal, p.name, p.cmd.Process.Pid, err)
	}
	return nil
}

// Stop ends the process and waits until it is gone: SIGTERM, and after a grace SIGKILL. A paused process is woken
// first, or it would never see the SIGTERM. Further calls are harmless.
func (p *Process) Stop() error {
	p.wanted.Store(false)
	if err := errors.Join(p.signal(syscall.SIGTERM), p.signal(syscall.SIGCONT)); err != nil {
		return err
	}
	timer := time.NewTimer(stopGrace)
	defer timer.Stop()
	select {
	case <-p.done:
		return nil
	case <-timer.C:
	}
	if err := p.signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-p.done
	return nil
}

// Ended reports whether the process has ended.
func (p *Process) Ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// withTail adds the end of the component's log to an error.
func (p *Process) withTail(err error) error {
	content := p.log()
	if strings.Contains(content, syscall.ENOSPC.Error()) {
		err = withHint(fmt.Errorf("%w: %w", err, syscall.ENOSPC))
	}
	return fmt.Errorf("%w\n--- end of %s:\n%s", err, p.logPath, tail(content))
}

// log is what the component wrote.
func (p *Process) log() string {
	content, err := os.ReadFile(p.logPath)
	if err != nil {
		return fmt.Sprintf("(unreadable: %v)", err)
	}
	return string(content)
}

// tail is the last part of a log, whole lines only, without the stacks of a panic: what matters stands before them.
func tail(log string) string {
	log, _, _ = strings.Cut(log, "\n\ngoroutine ")
	log = strings.TrimSpace(log)
	if len(log) <= tailBytes {
		return log
	}
	log = log[len(log)-tailBytes:]
	if _, rest, found := strings.Cut(log, "\n"); found {
		return rest
	}
	return log
}

// withHint adds the way out to errors that have one.
func withHint(err error) error {
	if errors.Is(err, syscall.ENOSPC) {
		return fmt.Errorf("%w (free some space, or name a folder on another disk: by TMPDIR, DEMO_DIR of the demo, or "+
			"Config.Dir)", err)
	}
	return err
}
