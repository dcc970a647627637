package run

import (
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/tenure-dev/tenure/bench/report"
	"github.com/tenure-dev/tenure/bench/scenario"
)

// environment says where the run takes place.
func environment(s scenario.Scenario, o Options) report.Environment {
	e := report.Environment{
		OS: runtime.GOOS + "/" + runtime.GOARCH, CPUs: runtime.NumCPU(), Go: runtime.Version(),
		Kernel: strings.TrimSpace(read("/proc/sys/kernel/osrelease")), CPU: field("/proc/cpuinfo", "model name"),
		APIServer: "on this machine, over loopback", EtcdData: "on disk, synced",
	}
	if s.Fleet.Storage == scenario.Memory {
		e.EtcdData = "in memory, not synced"
	}
	if len(o.Kubeconfigs) > 0 {
		e.APIServer, e.EtcdData = "by kubeconfig: "+strings.Join(sortedKeys(o.Kubeconfigs), ", "), "not known"
	}
	e.MemoryMB = memory("MemTotal") / 1e6
	if first, _, found := strings.Cut(read("/proc/loadavg"), " "); found {
		e.LoadBefore, _ = strconv.ParseFloat(first, 64)
	}
	e.Tenure = "unknown"
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, setting := range info.Settings {
			if setting.Key == "vcs.revision" {
				e.Tenure = setting.Value
			}
			if setting.Key == "vcs.modified" && setting.Value == "true" {
				e.Tenure += " with changes"
			}
		}
	}
	return e
}

// memory is a field of /proc/meminfo in bytes, 0 where the system has none.
func memory(name string) int64 {
	kb, _ := strconv.ParseInt(strings.TrimSuffix(field("/proc/meminfo", name), " kB"), 10, 64)
	return kb << 10
}

// read returns a file's content, "" where the system has no such file.
func read(path string) string {
	content, _ := os.ReadFile(path)
	return string(content)
}

// field returns the value of the first line "name : value".
func field(path, name string) string {
	for line := range strings.Lines(read(path)) {
		if key, value, found := strings.Cut(line, ":"); found && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
