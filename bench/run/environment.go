package run

import (
	"debug/buildinfo"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/prometheus/procfs"

	"github.com/tenure-dev/tenure/bench/report"
	"github.com/tenure-dev/tenure/bench/scenario"
)

// environment says where the run takes place.
func environment(s scenario.Scenario, o Options) report.Environment {
	e := report.Environment{
		OS: runtime.GOOS + "/" + runtime.GOARCH, CPUs: runtime.NumCPU(), Go: runtime.Version(),
		APIServer: "on this machine, over loopback", EtcdData: "on disk, synced",
	}
	if s.Fleet.Storage == scenario.Memory {
		e.EtcdData = "in memory, not synced"
	}
	if len(o.Kubeconfigs) > 0 {
		e.APIServer, e.EtcdData = "by kubeconfig: "+strings.Join(sortedKeys(o.Kubeconfigs), ", "), "not known"
	}
	e.GoSettings = map[string]string{}
	for _, name := range report.GoVariables {
		if value := os.Getenv(name); value != "" {
			e.GoSettings[name] = value
		}
	}
	total, _ := memory()
	e.MemoryMB = total / 1e6
	if release, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		e.Kernel = strings.TrimSpace(string(release))
	}
	if fs, err := procfs.NewDefaultFS(); err == nil {
		if cpus, err := fs.CPUInfo(); err == nil && len(cpus) > 0 {
			e.CPU = cpus[0].ModelName
		}
		if load, err := fs.LoadAvg(); err == nil {
			e.LoadBefore = load.Load1
		}
	}
	info, _ := debug.ReadBuildInfo()
	e.Tenure = revisionOf(info)
	for _, path := range []string{o.Tenure, o.Hooked} {
		if _, err := os.Stat(path); err != nil {
			continue
		}
		info, _ := buildinfo.ReadFile(path) // nil of a script
		if revisionOf(info) != e.Tenure {
			e.Tenure += fmt.Sprintf(", and %s of %s", path, revisionOf(info))
		}
	}
	return e
}

// revisionOf says what a program was built from.
func revisionOf(info *debug.BuildInfo) string {
	revision := "unknown"
	if info == nil {
		return revision
	}
	for _, setting := range info.Settings {
		if setting.Key == "vcs.revision" {
			revision = setting.Value
		}
		if setting.Key == "vcs.modified" && setting.Value == "true" {
			revision += " with changes"
		}
	}
	return revision
}

// memory is what the machine has and what of it is free, in bytes; 0 where the system doesn't tell.
func memory() (total, available int64) {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return 0, 0
	}
	if m, err := fs.Meminfo(); err == nil && m.MemTotalBytes != nil && m.MemAvailableBytes != nil {
		return int64(*m.MemTotalBytes), int64(*m.MemAvailableBytes)
	}
	return 0, 0
}
