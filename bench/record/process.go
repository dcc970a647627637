package record

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// ticks per second of /proc/PID/stat: USER_HZ, which is 100 on every Linux that Go runs on.
const ticks = 100

// Use is what a process has used.
type Use struct {
	// CPU is the time it has spent on processors.
	CPU time.Duration
	// RSS is the memory that it holds now, Peak the most that it has held, in bytes.
	RSS, Peak int64
}

// UseOf reads what a process has used so far.
func UseOf(pid int) (Use, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return Use{}, fmt.Errorf("reading the CPU time of process %d: %w", pid, err)
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return Use{}, fmt.Errorf("reading the memory of process %d: %w", pid, err)
	}
	u, err := parseUse(stat, status)
	if err != nil {
		return Use{}, fmt.Errorf("process %d: %w", pid, err)
	}
	return u, nil
}

func parseUse(stat, status []byte) (Use, error) {
	var u Use
	// The second field is the program's name in parentheses, which may hold anything.
	_, rest, found := bytes.Cut(stat[max(0, bytes.LastIndexByte(stat, ')')):], []byte(") "))
	fields := strings.Fields(string(rest))
	if !found || len(fields) < 13 {
		return u, fmt.Errorf("unreadable stat %q", stat)
	}
	for _, field := range fields[11:13] { // utime, stime
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return u, fmt.Errorf("unreadable stat: %w", err)
		}
		u.CPU += time.Duration(n) * time.Second / ticks
	}
	var err error
	if u.RSS, err = kilobytes(status, "VmRSS:"); err != nil {
		return u, err
	}
	u.Peak, err = kilobytes(status, "VmHWM:")
	return u, err
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
