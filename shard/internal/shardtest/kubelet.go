package shardtest

import (
	"slices"
	"time"

	"github.com/tenure-dev/tenure/shard/internal/ownership"
)

// Each process runs in a container of a Pod. When it ends, its node's kubelet reports what its termination log says.
// The report takes a while, and waits while the node is cut off. A process that is paused or asleep hasn't ended.

// container returns the name of the container in which all lives of the process run.
func (n *node) container() string { return "pod-" + n.name }

// ended records what the process's termination log said at its end, and queues the kubelet's report. The next
// process begins with an empty log.
func (n *node) ended() {
	if n.said == "" {
		return
	}
	n.ends = slices.Concat([]ownership.Incarnation{n.said}, n.ends)
	n.ends = n.ends[:min(len(n.ends), 2)]
	n.said = ""
	if w := n.w; w.schedule.Kubelets {
		w.push(event{at: w.now + 10*time.Millisecond + w.upTo(time.Second), kind: evReport, node: int8(n.index)})
	}
}

// report makes the kubelet report the ends of the container's processes.
func (n *node) report() {
	w := n.w
	if there := max(n.cutTill, w.awayTill); w.now < there {
		w.push(event{at: there, kind: evReport, node: int8(n.index)})
		return
	}
	w.tellOf(ownership.ContainerSeen{Container: n.container(), Ended: n.ends})
}

// misreports are Pod statuses that don't prove the end of a live process. (A false status that names the present
// incarnation in its own container isn't among them: the protocol believes it.)
var misreports = []string{
	"earlier",   // the container names an incarnation that was over already
	"elsewhere", // another Pod's container names the present incarnation
	"neighbour", // the container names another process's incarnation
	"gone",      // the Pod is deleted, which doesn't show whether the process has ended
}

// misreport publishes one of the misreports about the process. It could do harm only to an incarnation that lives.
func (n *node) misreport(f *Fault) {
	w, victim := n.w, n
	seen := ownership.ContainerSeen{Container: n.container()}
	switch misreports[f.N%len(misreports)] {
	case "earlier":
		seen.Ended = []ownership.Incarnation{n.incarnation(n.lives - 1)}
	case "elsewhere":
		seen.Container, seen.Ended = "another "+n.container(), []ownership.Incarnation{n.id}
	case "neighbour":
		victim = &w.nodes[(n.index+len(w.nodes)-1)%len(w.nodes)]
		seen.Ended = []ownership.Incarnation{victim.id}
	}
	if victim.valid() {
		w.felt(f)
	}
	w.tellOf(seen)
}

// tellOf shows a kubelet's report to all processes.
func (w *world) tellOf(seen ownership.ContainerSeen) {
	if w.out != nil {
		w.say(nil, "  the kubelet of %s reports the end of %v", seen.Container, seen.Ended)
	}
	w.store.putContainer(seen)
	w.pumpAll()
}
