// Package machine reads how busy the machine is: a figure that depends on it should tell.
package machine

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// Times is what the processors did since the machine started, all of them together.
type Times struct {
	Busy   time.Duration // not idle, Stolen included
	Stolen time.Duration // wanted here, and given to others by the hypervisor (proc(5), steal)
	All    time.Duration
}

// Now reads the times. ok is false where the system doesn't tell, as outside Linux.
func Now() (t Times, ok bool) {
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return Times{}, false
	}
	first, _, _ := strings.Cut(string(stat), "\n")
	return parse(first)
}

// parse reads the first line of /proc/stat: user nice system idle iowait irq softirq steal, in hundredths of a second.
func parse(line string) (t Times, ok bool) {
	const idle, iowait, steal = 3, 4, 7
	fields := strings.Fields(line)
	if len(fields) <= 1+steal || fields[0] != "cpu" {
		return Times{}, false
	}
	for i, field := range fields[1 : 2+steal] {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return Times{}, false
		}
		d := time.Duration(n) * 10 * time.Millisecond
		t.All += d
		switch i {
		case idle, iowait:
		case steal:
			t.Stolen = d
			fallthrough
		default:
			t.Busy += d
		}
	}
	return t, true
}

// Since returns what the processors did from an earlier moment to this one.
func (t Times) Since(before Times) Times {
	return Times{Busy: t.Busy - before.Busy, Stolen: t.Stolen - before.Stolen, All: t.All - before.All}
}

// String tells the shares.
func (t Times) String() string {
	share := func(d time.Duration) float64 { return 100 * float64(d) / float64(max(t.All, 1)) }
	return fmt.Sprintf("%.0f %% busy, of which the hypervisor gave %.0f %% to others", share(t.Busy), share(t.Stolen))
}
