package sharding

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/test/lab/faultproxy"
)

// TestASlowClusterHoldsUpNoOther gives one cluster more work than can be done, because it answers everything late,
// and looks at when another cluster's Ats begin. With one queue for all clusters they would wait for seconds,
// because every worker would be busy with the slow cluster.
func TestASlowClusterHoldsUpNoOther(t *testing.T) {
	r := newRig(t)
	const rounds, inWest, inEast, delay = 10, 4, 5, 2500 * time.Millisecond
	r.start("n1", "--workers=4", "--lease-duration=10s")
	r.settle()
	late := r.Proxy("west").Inject(faultproxy.Rule{
		Match: faultproxy.Match{Verbs: []string{"get", "create", "update", "patch"}}, Fault: faultproxy.Delay, Delay: delay,
	})
	for range rounds {
		r.createAts(inWest, 0, "west")
		r.createAts(inEast, 0, "east")
		time.Sleep(500 * time.Millisecond)
	}
	r.eventually("the healthy cluster's Ats are DONE", func() error { return r.unfinished("east") })
	if r.unfinished("west") == nil {
		t.Error("the slow cluster had nothing left to do: the test has tested nothing")
	}
	created, begun := map[string]time.Time{}, []time.Duration{}
	for _, e := range r.audited("east") {
		switch {
		case e.Namespace != r.namespace || e.Resource != "ats" || e.Code >= http.StatusBadRequest:
		case e.Verb == "create":
			created[e.Name] = e.Answered()
		case e.Subresource == "status" && !created[e.Name].IsZero(): // its first: RUNNING
			begun = append(begun, e.Answered().Sub(created[e.Name]))
			delete(created, e.Name)
		}
	}
	slices.Sort(begun)
	if len(begun) != rounds*inEast {
		t.Fatalf("%d Ats of the healthy cluster have begun, want %d", len(begun), rounds*inEast)
	}
	median, worst := begun[len(begun)/2], begun[len(begun)-1]
	t.Logf("beside a cluster that answers late, %d requests of which were delayed, Ats began after %v at the median, %v "+
		"at most", late.Hits(), median, worst)
	// An At that waits for a worker of the slow cluster waits for several of its requests, whatever else the
	// machine does.
	if late.Hits() < inWest || median > delay {
		t.Errorf("the healthy cluster suffered, want %v at the median at most", delay)
	}
	late.End()
	r.eventually("the slow cluster has caught up", func() error { return r.unfinished("west") })
}
