package integration

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/url"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/procfs"

	"github.com/tenure-dev/tenure/test/lab"
	"github.com/tenure-dev/tenure/test/lab/labtest"
	"github.com/tenure-dev/tenure/test/must"
)

var idleClusters = flag.Int("idle-clusters", 5,
	"how many idle clusters a fleet gets, twice: what the second ones cost is measured")

// cost is what replicas have in use, all together.
type cost struct {
	heap        int64 // bytes that are reachable
	goroutines  int
	connections int // to workload clusters
}

func (c cost) minus(o cost) cost {
	return cost{c.heap - o.heap, c.goroutines - o.goroutines, c.connections - o.connections}
}

// A fleet may have hundreds of clusters in which nothing happens. The cost of one is the difference that more of
// them make to all replicas together, with default settings.
func TestAnIdleClusterCostsLittle(t *testing.T) {
	n := *idleClusters
	f := labtest.Fleet(t, lab.Options{Workloads: []string{"host"}, Untold: true, Bare: true, Direct: true,
		Tenure: labtest.Tenure(t), Lean: true, LeaseDuration: 10 * time.Second}) // a busy machine alone makes nobody lapse
	ports := map[uint64]bool{}
	add := func(from int) {
		t.Helper()
		for i := range n {
			v, err := f.AddVirtual(t.Context(), "host", fmt.Sprintf("v%03d", from+i))
			must.Succeed(t, err)
			ports[portOf(t, v.RESTConfig().Host)] = true
		}
		labtest.Settle(t, f, labtest.Patience)
	}
	labtest.Replicas(t, f, "r1", "r2", "r3")
	add(0)
	before := atRest(t, f, ports)
	add(n)
	after := atRest(t, f, ports)
	each := after.minus(before)
	t.Logf("%d clusters: %+v; %d: %+v", n, before, 2*n, after)
	t.Logf("one more idle cluster costs three replicas %d KiB of live heap, %.1f goroutines, %.1f connections",
		each.heap/int64(n)>>10, float64(each.goroutines)/float64(n), float64(each.connections)/float64(n))
	if most := (cost{heap: 320 << 10, goroutines: 16}); each.heap > most.heap*int64(n) ||
		each.goroutines > most.goroutines*n {
		t.Errorf("that is more than %+v", most)
	}
}

// forgotten is how long it takes until a closed connection is out of memory: a timer of HTTP/2's that is set to 30 s
// holds it.
const forgotten = 35 * time.Second

// atRest waits until nothing changes any more, and what was closed before is out of memory.
func atRest(t *testing.T, f *lab.Fleet, ports map[uint64]bool) cost {
	t.Helper()
	awaitQuiet(t, f, ports)
	must.Succeed(t, lab.Sleep(t.Context(), forgotten))
	return awaitQuiet(t, f, ports)
}

// awaitQuiet waits until two looks find the same, and each cluster connected with one replica.
func awaitQuiet(t *testing.T, f *lab.Fleet, ports map[uint64]bool) (now cost) {
	t.Helper()
	var last cost
	labtest.Eventually(t, "replicas are at rest", func() error {
		var err error
		if now, err = costOf(t.Context(), f, ports); err != nil {
			return err
		}
		quiet := last.goroutines == now.goroutines && last.connections == now.connections
		last = now
		if !quiet || now.connections != len(ports) {
			_ = lab.Sleep(t.Context(), time.Second)
			return fmt.Errorf("they have %+v, with %d clusters", now, len(ports))
		}
		return nil
	})
	return now
}

// costOf asks all replicas.
func costOf(ctx context.Context, f *lab.Fleet, ports map[uint64]bool) (sum cost, _ error) {
	for _, r := range f.Alive() {
		heap, err := profiled(ctx, r, "heap?debug=1&gc=1", `(?m)^# HeapAlloc = (\d+)$`)
		if err != nil {
			return cost{}, err
		}
		goroutines, err := profiled(ctx, r, "goroutine?debug=1", `^goroutine profile: total (\d+)\n`)
		if err != nil {
			return cost{}, err
		}
		connections, err := connectionsOf(r.PID(), ports)
		if err != nil {
			return cost{}, err
		}
		sum.heap, sum.goroutines, sum.connections = sum.heap+int64(heap), sum.goroutines+goroutines,
			sum.connections+connections
	}
	return sum, nil
}

// profiled reads a figure from one of a replica's profiles.
func profiled(ctx context.Context, r *lab.Replica, profile, figure string) (int, error) {
	page, err := lab.Get(ctx, "http://"+r.Address(1)+"/debug/pprof/"+profile)
	if err != nil {
		return 0, err
	}
	found := regexp.MustCompile(figure).FindSubmatch(page)
	if found == nil {
		return 0, errors.New("the profile " + profile + " doesn't tell")
	}
	return strconv.Atoi(string(found[1]))
}

// established is the state of a TCP connection in /proc.
const established = 1

// connectionsOf counts a process's connections to ports of this machine.
func connectionsOf(pid int, ports map[uint64]bool) (n int, _ error) {
	process, err := procfs.NewProc(pid)
	if err != nil {
		return 0, err
	}
	files, err := process.FileDescriptorTargets()
	if err != nil {
		return 0, err
	}
	own := map[string]bool{}
	for _, f := range files {
		own[f] = true
	}
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return 0, err
	}
	all, err := proc.NetTCP()
	if err != nil {
		return 0, err
	}
	for _, c := range all {
		if c.St == established && ports[c.RemPort] && own[fmt.Sprintf("socket:[%d]", c.Inode)] {
			n++
		}
	}
	return n, nil
}

func portOf(t *testing.T, server string) uint64 {
	t.Helper()
	address, err := url.Parse(server)
	must.Succeed(t, err)
	port, err := strconv.ParseUint(address.Port(), 10, 16)
	must.Succeed(t, err)
	return port
}
