package record

import (
	"fmt"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// Use is what a process has used.
type Use struct {
	// CPU is the time it has spent on processors.
	CPU time.Duration
	// RSS is the memory that it holds now, Peak the most that it has held, in bytes.
	RSS, Peak int64
}

// UseOf reads what a process has used so far.
func UseOf(pid int) (Use, error) {
	// The clock of a process counts nanoseconds; /proc/PID/stat has hundredths of a second, too few for a turn of seconds.
	var spent unix.Timespec
	if err := unix.ClockGettime(processClock(pid), &spent); err != nil {
		return Use{}, fmt.Errorf("reading the CPU time of process %d: %w", pid, err)
	}
	var status procfs.ProcStatus
	process, err := procfs.NewProc(pid)
	if err == nil {
		status, err = process.NewStatus()
	}
	if err != nil {
		return Use{}, fmt.Errorf("reading the memory of process %d: %w", pid, err)
	}
	return Use{CPU: time.Duration(spent.Nano()), RSS: int64(status.VmRSS), Peak: int64(status.VmHWM)}, nil
}

// processClock is Linux' clock of the processor time of all threads of a process, as of clock_getcpuclockid(3).
func processClock(pid int) int32 {
	const scheduled = 2 // by the scheduler, to the nanosecond
	return int32(^pid<<3 | scheduled)
}

// Components finds the processes of control planes by their working folders: cluster/component to pid.
func Components(folders map[string]string) (map[string]int, error) {
	all, err := procfs.AllProcs()
	if err != nil {
		return nil, fmt.Errorf("looking for processes: %w", err)
	}
	found := map[string]int{}
	for _, p := range all {
		folder, err := p.Cwd()
		if err != nil {
			continue // gone, or not ours
		}
		for cluster, dir := range folders {
			if folder != dir {
				continue
			}
			if args, err := p.CmdLine(); err == nil && len(args) > 1 {
				found[cluster+"/"+args[1]] = p.PID
			}
		}
	}
	for cluster := range folders {
		for _, component := range []string{"etcd", "kube-apiserver"} {
			if found[cluster+"/"+component] == 0 {
				return nil, fmt.Errorf("no process of %s in cluster %s", component, cluster)
			}
		}
	}
	return found, nil
}
