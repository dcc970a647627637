package record

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

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
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return Use{}, fmt.Errorf("reading the memory of process %d: %w", pid, err)
	}
	u := Use{CPU: time.Duration(spent.Nano())}
	if u.RSS, err = kilobytes(status, "VmRSS:"); err == nil {
		u.Peak, err = kilobytes(status, "VmHWM:")
	}
	if err != nil {
		return Use{}, fmt.Errorf("reading the memory of process %d: %w", pid, err)
	}
	return u, nil
}

// processClock is Linux' clock of the processor time of all threads of a process, as of clock_getcpuclockid(3).
func processClock(pid int) int32 {
	const scheduled = 2 // by the scheduler, to the nanosecond
	return int32(^pid<<3 | scheduled)
}

func kilobytes(status []byte, name string) (int64, error) {
	for line := range strings.Lines(string(status)) {
		if rest, found := strings.CutPrefix(line, name); found {
			n, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return n << 10, err
		}
	}
	return 0, fmt.Errorf("no %s in its status", name)
}

// Components finds the processes of control planes by their working folders: cluster/component to pid.
func Components(folders map[string]string) (map[string]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("looking for processes: %w", err)
	}
	found := map[string]int{}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		folder, err := os.Readlink(filepath.Join("/proc", e.Name(), "cwd"))
		if err != nil {
			continue // gone, or not ours
		}
		for cluster, dir := range folders {
			if folder != dir {
				continue
			}
			args, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
			if parts := strings.Split(string(args), "\x00"); err == nil && len(parts) > 1 {
				found[cluster+"/"+parts[1]] = pid
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
