package onboard

import (
	"fmt"
	"slices"

	tenurev1alpha1 "github.com/tenure-dev/tenure/pkg/apis/tenure/v1alpha1"
	"github.com/tenure-dev/tenure/pkg/clusterhealth"
	"github.com/tenure-dev/tenure/pkg/console"
	"github.com/tenure-dev/tenure/pkg/text"
	"github.com/tenure-dev/tenure/shard/keyspace"
	"github.com/tenure-dev/tenure/shard/plan"
	"github.com/tenure-dev/tenure/shard/protocol"
)

// Service is how the fleet serves one cluster.
type Service struct {
	// Shards counts those that are recorded, Held those of a live replica, Taken those of one that isn't known to be
	// gone.
	Shards int `json:"shards"`
	Held   int `json:"held"`
	Taken  int `json:"-"`
	// Replicas counts those that hold some, Live all live ones.
	Replicas int `json:"replicas"`
	Live     int `json:"liveReplicas"`
	// Unfit are live replicas that can't serve the cluster, by their own word.
	Unfit []string `json:"unfit,omitempty"`
	// Stuck counts the shards that live replicas hold and say they can't serve.
	Stuck int `json:"stuck,omitempty"`
	// Trouble is why work in the cluster waits, by the word of replicas; "" if it doesn't.
	Trouble string `json:"trouble,omitempty"`
	// Complete reports whether the shards cover the whole cluster, and all are held by replicas that can serve it.
	Complete bool `json:"complete"`
	// Doubt says what couldn't be found out about that; "" for nothing.
	Doubt string `json:"-"`
}

// serving judges how the fleet serves a cluster.
func serving(f console.Fleet, name string) Service {
	state := map[protocol.Incarnation]console.ReplicaState{}
	s := Service{Live: f.Totals.Replicas}
	for _, r := range f.Replicas {
		state[r.Incarnation] = r.State
		if r.Acts() && r.Unfit.Of(keyspace.ClusterName(name)) == plan.Unfit {
			s.Unfit = append(s.Unfit, string(r.Incarnation))
		}
	}
	c := f.Cluster(name)
	s.Stuck = c.Stuck
	if c.State == protocol.ClusterOpen || c.State == protocol.ClusterHalfOpen {
		s.Trouble = c.Cause
	}
	holders, covered := map[protocol.Incarnation]bool{}, 0
	for _, sh := range f.Shards {
		if sh.Cluster != keyspace.ClusterName(name) {
			continue
		}
		s.Shards++
		if sh.Served {
			s.Held++
			holders[sh.Holder] = true
			if first, last := sh.ID.Prefix.Slots(); !slices.Contains(s.Unfit, string(sh.Holder)) {
				covered += int(last) - int(first) + 1
			}
		}
		if sh.Served || state[sh.Holder] == console.Quiet {
			s.Taken++
		}
	}
	s.Replicas = len(holders)
	s.Complete = s.Shards > 0 && s.Held == s.Shards && s.Stuck == 0 && covered == 1<<keyspace.MaxBits
	return s
}

// servedAs returns another name under which replicas hold shards of the cluster of that UID; "" if there is none.
func servedAs(f console.Fleet, layouts []tenurev1alpha1.Shard, name, uid string) string {
	return console.ServedAs(layouts, name, uid, func(other string) bool { return serving(f, other).Taken > 0 })
}

// displaced returns the UID of another cluster that has this name and of which replicas hold shards; "" if there is
// none.
func displaced(f console.Fleet, layouts []tenurev1alpha1.Shard, name, uid string) string {
	for _, l := range layouts {
		if l.Spec.Cluster == name && l.Spec.Layout.ClusterUID != uid && serving(f, name).Taken > 0 {
			return l.Spec.Layout.ClusterUID
		}
	}
	return ""
}

// String returns it in a few words.
func (s Service) String() string {
	if s.Shards == 0 {
		return "not divided into shards"
	}
	by := "nobody"
	if s.Replicas > 0 {
		by = fmt.Sprintf("%d of %d replicas", s.Replicas, s.Live)
	}
	text := fmt.Sprintf("%d of %d held by %s", s.Held, s.Shards, by)
	if len(s.Unfit) > 0 {
		text += "; can't serve it, by their own word: " + few(s.Unfit)
	}
	if s.Stuck > 0 {
		text += fmt.Sprintf("; the holders of %d can't serve them now", s.Stuck)
	}
	if s.Trouble != "" {
		text += "; nothing is served (" + s.Trouble + ")"
	}
	return text
}

// complaint returns what replicas say against a cluster, to follow other words; "" for nothing.
func complaint(reports []console.Answer, name string) (said string) {
	for _, a := range reports {
		if string(a.Cluster) == name && a.Reason != clusterhealth.ReasonUsable {
			said = fmt.Sprintf("; a replica says %s: %s", a.Reason, a.Note)
		}
	}
	return said
}

// obstacle says why a cluster isn't served, as far as the records tell, and what to look at.
func obstacle(f console.Fleet, name string, reports []console.Answer) string {
	s, said := serving(f, name), complaint(reports, name)
	switch {
	case s.Live == 0:
		return fmt.Sprintf("no replica is alive in namespace %s: kubectl -n %[1]s get pods, and see that --namespace and "+
			"--fleet are theirs; with --sharding=off nothing tells whether a cluster is served: give --wait 0", f.Namespace)
	case s.Shards == 0 && !slices.ContainsFunc(f.Replicas,
		func(r console.Replica) bool { return r.Coordinator && r.Acts() }):
		return "no replica coordinates, so the cluster isn't divided into shards: tenure status" + said
	case s.Shards == 0:
		if len(s.Unfit) > 0 {
			said += "; these replicas say that they can't serve it: " + few(s.Unfit)
		}
		return "the coordinator hasn't divided the cluster into shards" + said +
			": a coordinator that has just started waits for two and a half lease durations; else see whether replicas " +
			"reach its server (--server), and the coordinator's log"
	}
	var open []string
	for _, sh := range f.Shards {
		if string(sh.Cluster) == name && (!sh.Served || slices.Contains(s.Unfit, string(sh.Holder))) {
			open = append(open, sh.ID.String())
		}
	}
	if len(open) > 0 {
		said += "; not served: " + few(open)
	}
	return fmt.Sprintf("of its shards %s%s: see whether replicas reach its server (--server), tenure cluster check %s, "+
		"and the replicas' logs", s, said, name)
}

// few joins the first names, and counts the others.
func few(names []string) string { return text.Few(names, 3) }
