package shardtest

import (
	"slices"
	"time"

	"github.com/tenure-dev/tenure/shard/internal/ownership"
)

// A process runs in a container of a Pod. What its termination log said when it ended is reported by its node's
// kubelet, which may take a while, and can't while the node is cut off. A process that is paused or asleep hasn't
// ended.

// container names the one that the process runs in, for all its lives.
func (n *node) container() string { return "pod-" + n.name }

// ended notes how the process ended: the next one begins with an empty termination log.
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

// report has the kubelet say how processes ended.
func (n *node) report() {
	w := n.w
	if there := max(n.cutTill, w.awayTill); w.now < there {
		w.push(event{at: there, kind: evReport, node: int8(n.index)})
		return
	}
	w.tellOf(ownership.ContainerSeen{Container: n.container(), Ended: n.ends})
}

// misreports are what Pods may say that is no proof of the end of a process that lives. (A lie that names the present
// incarnation in its own container isn't among them: the protocol believes it.)
var misreports = []string{
	"earlier",   // the container names an incarnation that was over already
	"elsewhere", // another Pod's names the present one
	"neighbour", // the container names another process's
	"gone",      // the Pod is deleted, and nobody knows whether the process has ended
}

// misreport has the status of the process's Pod, or of one that claims to be it, say one of them.
func (n *node) misreport(which int) {
	w := n.w
	seen := ownership.ContainerSeen{Container: n.container()}
	switch misreports[which%len(misreports)] {
	case "earlier":
		seen.Ended = []ownership.Incarnation{n.incarnation(n.lives - 1)}
	case "elsewhere":
		seen.Container, seen.Ended = "another "+n.container(), []ownership.Incarnation{n.id}
	case "neighbour":
		seen.Ended = []ownership.Incarnation{w.nodes[(n.index+len(w.nodes)-1)%len(w.nodes)].id}
	}
	w.tellOf(seen)
}

// tellOf shows a kubelet's report to all who watch.
func (w *world) tellOf(seen ownership.ContainerSeen) {
	if w.out != nil {
		w.say(nil, "  the kubelet of %s reports the end of %v", seen.Container, seen.Ended)
	}
	w.store.putContainer(seen)
	w.pumpAll()
}
