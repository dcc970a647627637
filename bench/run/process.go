package run

import (
	"syscall"

	"github.com/tenure-dev/tenure/bench/record"
	"github.com/tenure-dev/tenure/test/lab"
)

// process is one replica, or the floor.
type process struct {
	*lab.Replica
	scraped  bool   // it serves metrics
	profiled bool   // and profiles, over the second of its addresses
	samples  string // file
}

// use is what it has used so far, also after its end.
func (p *process) use() (record.Use, error) {
	used, err := record.UseOf(p.PID())
	state := p.State()
	if state == nil {
		return used, err
	}
	used = record.Use{CPU: state.UserTime() + state.SystemTime()}
	if usage, ok := state.SysUsage().(*syscall.Rusage); ok {
		used.Peak = usage.Maxrss << 10
		used.RSS = used.Peak
	}
	return used, nil
}
