package console

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	tenurev1alpha1 "github.com/tenure-dev/tenure/pkg/apis/tenure/v1alpha1"
	"github.com/tenure-dev/tenure/pkg/clusterhealth"
	"github.com/tenure-dev/tenure/pkg/kubeconfig"
	"github.com/tenure-dev/tenure/shard"
	"github.com/tenure-dev/tenure/shard/inspect"
	"github.com/tenure-dev/tenure/shard/keyspace"
	"github.com/tenure-dev/tenure/shard/plan"
	"github.com/tenure-dev/tenure/shard/protocol"
)

const (
	// mapColumns is the width of a cluster's map.
	mapColumns = 32
	slots      = 1 << keyspace.MaxBits
	// recentChanges is how many changes of holder are kept.
	recentChanges = 50
)

// entry is a record with what it says.
type entry struct {
	raw *tenurev1alpha1.Shard
	inspect.Shard
	holder *Replica // nil if there is none
}

// moving reports whether a live replica holds the shard and another one is its assignee.
func (e *entry) moving() bool {
	return e.holder != nil && e.holder.Acts() && e.Assignee != "" && e.Assignee != e.Holder
}

func (e *entry) served() bool { return e.holder != nil && e.holder.Acts() }

// held reports whether its holder acts, or may act: a quiet one may be at work.
func (e *entry) held() bool { return e.served() || e.holder != nil && e.holder.State == Quiet }

// counts reports whether the record is one of those that need a holder or have one.
func (v *survey) counts(e *entry) bool { return !v.unwanted[e.ID.Cluster] || e.held() }

// letGo reports whether the status of a record without a holder was written less than a default lease duration ago, as
// far as its managed fields say.
func (e *entry) letGo(now time.Time) bool {
	return slices.ContainsFunc(e.raw.ManagedFields, func(f metav1.ManagedFieldsEntry) bool {
		return f.Subresource == "status" && f.Time != nil && now.Sub(f.Time.Time) < shard.DefaultLeaseDuration
	})
}

// tenancy is a cluster and a replica that may hold shards of it.
type tenancy struct {
	cluster keyspace.ClusterName
	holder  protocol.Incarnation
}

// survey is the input of a judgement, parsed and linked.
type survey struct {
	Snapshot
	shards   map[tenancy]int // counts; looking through all entries for each replica and cluster would take seconds
	members  *members
	replicas []*Replica
	entries  []*entry // by shard, in order
	clusters []*Cluster
	bySlot   map[keyspace.ClusterName]*[slots][]*entry
	unwanted map[keyspace.ClusterName]bool // their records need no holder, though some may still have one
	odd      []inspect.Odd
}

// Assess judges the fleet. It is pure.
func Assess(s Snapshot) Fleet {
	v := surveyOf(s)
	f := Fleet{
		Home: s.Home, Namespace: s.Namespace, Taken: s.Now, Unread: slices.Concat(s.Unread, v.members.unread),
		// In JSON, an empty list is [], not null, which most readers can't iterate.
		Replicas: []Replica{}, Clusters: []Cluster{}, Shards: []Shard{}, Moves: []Move{}, Recent: []Change{},
	}
	for _, r := range v.replicas {
		f.Replicas = append(f.Replicas, *r)
		if r.State == Live {
			f.Totals.Replicas++
		}
	}
	for _, c := range v.clusters {
		f.Clusters = append(f.Clusters, *c)
		if !v.unwanted[c.Name] {
			f.Totals.Clusters++
		}
	}
	for _, e := range v.entries {
		f.Shards = append(f.Shards, v.shard(e))
		if v.counts(e) {
			f.Totals.add(e)
		}
		if e.moving() {
			f.Moves = append(f.Moves, v.move(e))
		}
		if m := e.raw.Status.LastMove; m != nil {
			f.Recent = append(f.Recent, Change{
				Shard: e.ID, Kind: protocol.MoveKind(m.Kind), From: protocol.Incarnation(m.From), To: protocol.Incarnation(m.To),
				Epoch: int64(e.Epoch), At: showable(m.Time.Time),
			})
		}
	}
	slices.SortStableFunc(f.Recent, func(a, b Change) int { return b.At.Compare(a.At) })
	f.Recent = f.Recent[:min(len(f.Recent), recentChanges)]
	slices.SortStableFunc(f.Moves, func(a, b Move) int { return cmp.Compare(b.AskedAgo, a.AskedAgo) })
	f.Findings = append([]Finding{}, v.findings()...)
	f.Healthy = !slices.ContainsFunc(f.Findings, func(x Finding) bool { return x.Severity == Wrong })
	return f
}

// showable returns the zero time for a time that JSON can't show. One such time would hide the whole answer.
func showable(t time.Time) time.Time {
	if year := t.Year(); year < 0 || year > 9999 {
		return time.Time{}
	}
	return t
}

func (t *Totals) add(e *entry) {
	t.Shards++
	t.Objects += e.Objects
	t.Load += e.Load
	if e.served() {
		t.Held++
	}
	if e.moving() {
		t.Moving++
	}
}

// surveyOf reads the records and links them.
func surveyOf(s Snapshot) *survey {
	v := &survey{Snapshot: s, members: readLeases(s), bySlot: map[keyspace.ClusterName]*[slots][]*entry{},
		unwanted: map[keyspace.ClusterName]bool{}, shards: map[tenancy]int{}}
	var counting []*tenurev1alpha1.Shard
	counting, v.odd, _ = s.Records.Sort()
	for _, raw := range counting {
		said, err := inspect.ReadShard(s.Records.Fleet, raw)
		if err != nil {
			if !slices.ContainsFunc(v.odd, func(o inspect.Odd) bool { return o.Record == raw.Name }) {
				v.odd = append(v.odd, inspect.Odd{Record: raw.Name, Reason: inspect.Unreadable, Note: err.Error()})
			}
			continue
		}
		v.entries = append(v.entries, &entry{raw: raw, Shard: said})
	}
	slices.SortFunc(v.entries, func(a, b *entry) int { return a.ID.Compare(b.ID) })
	for _, e := range v.entries {
		v.shards[tenancy{e.ID.Cluster, e.Holder}]++
		if e.Holder != "" {
			e.holder = v.members.named(e.Holder)
			e.holder.Shards++
			e.holder.Objects += e.Objects
			e.holder.Load += e.Load
		}
		v.cover(e)
	}
	if v.members.lead != "" {
		v.members.named(v.members.lead).Coordinator = true
	}
	v.replicas = v.members.sorted()
	v.readClusters()
	return v
}

// cover enters a record at the slots that it covers.
func (v *survey) cover(e *entry) {
	at := v.bySlot[e.ID.Cluster]
	if at == nil {
		at = new([slots][]*entry)
		v.bySlot[e.ID.Cluster] = at
	}
	first, last := e.ID.Prefix.Slots()
	for slot := int(first); slot <= int(last); slot++ {
		at[slot] = append(at[slot], e)
	}
}

// clusterMap holds what is known of each cluster.
type clusterMap struct {
	byName map[keyspace.ClusterName]*Cluster
	named  map[keyspace.ClusterName]bool // records of it name holders, which may have ended
	held   map[keyspace.ClusterName]bool // holders of it act, or may act
	fresh  map[keyspace.ClusterName]bool // a record of it was let go of a moment ago
	known  map[keyspace.ClusterName]bool // a replica that acts, or a holder that may act, knows it
}

// readClusters sums up what is known of each cluster, in order of names.
func (v *survey) readClusters() {
	m := clusterMap{map[keyspace.ClusterName]*Cluster{}, map[keyspace.ClusterName]bool{},
		map[keyspace.ClusterName]bool{}, map[keyspace.ClusterName]bool{}, map[keyspace.ClusterName]bool{}}
	v.sumRecords(m)
	v.addViews(m)
	v.judgeAnswers(m)
	for _, c := range m.byName {
		if !v.Registered && !m.named[c.Name] && !c.Fails() && v.living() > 0 {
			// Without the right to read Secrets, this is only a conclusion: no record has a holder, and no replica
			// complains.
			c.Removed = true
		}
		// While some replicas still finish what they do there, nobody needs to hold what others have let go of. Of a cluster
		// of a file that doesn't answer, replicas say the same, but report its state.
		ends := c.Removed && !m.known[c.Name] && c.State == ""
		// Home and the clusters of files have no Secret. Replicas let go of shards a little before they say that they don't
		// know the cluster.
		c.Removed = c.Removed && !m.held[c.Name] && (!m.known[c.Name] || m.fresh[c.Name])
		c.Map, v.unwanted[c.Name] = v.drawMap(c.Name), c.Removed || ends || c.Reason == ReasonTwoNames
		v.clusters = append(v.clusters, c)
	}
	slices.SortFunc(v.clusters, func(a, b *Cluster) int { return cmp.Compare(a.Name, b.Name) })
}

// sumRecords enters the clusters that are registered, and those of the records with their sums.
func (v *survey) sumRecords(m clusterMap) {
	get := func(name keyspace.ClusterName) *Cluster {
		if m.byName[name] == nil {
			m.byName[name] = &Cluster{Name: name, Removed: v.Registered}
		}
		return m.byName[name]
	}
	for _, a := range v.Clusters {
		c := get(a.Cluster)
		c.Removed, c.Reason, c.Note = false, a.Reason, a.Note
	}
	for _, e := range v.entries {
		c := get(e.ID.Cluster)
		c.Shards++
		c.Objects += e.Objects
		m.named[c.Name] = m.named[c.Name] || e.holder != nil
		m.fresh[c.Name] = m.fresh[c.Name] || e.holder == nil && e.letGo(v.Now)
		if e.served() {
			c.Held++
		}
		if e.held() {
			m.held[c.Name] = true
			m.known[c.Name] = m.known[c.Name] || e.holder.Unfit.Of(c.Name) != plan.Unfit
		}
		if e.moving() {
			c.Moving++
		}
	}
}

// addViews adds what the replicas that act report about the clusters.
func (v *survey) addViews(m clusterMap) {
	for _, r := range v.replicas {
		if !r.Acts() {
			continue
		}
		for _, said := range r.Clusters {
			c := m.byName[said.Cluster]
			if c == nil {
				continue
			}
			if v.bystander(r, c) {
				said.State, said.Cause = protocol.ClusterClosed, ""
			}
			c.addView(said)
		}
		for _, c := range m.byName {
			// A replica says that it can't serve a cluster of the records that it doesn't know, but waits a little after its
			// start: it may be about to learn of it.
			unfit := r.Unfit.Of(c.Name) == plan.Unfit
			c.Unfit = c.Unfit || unfit
			m.known[c.Name] = m.known[c.Name] || !unfit && !r.Young
		}
	}
}

// judgeAnswers compares what was answered from here with what replicas say, and with the layouts.
func (v *survey) judgeAnswers(m clusterMap) {
	for _, a := range v.Clusters {
		c := m.byName[a.Cluster]
		if a.Reason == clusterhealth.ReasonUnreachable && !a.Reported && c.Served() {
			c.Reason = ReasonNotFromHere
		}
		switch {
		case a.Reason == ReasonTwoNames && m.held[c.Name]: // it isn't so any more
			c.Reason, c.Note = "", ""
		case !c.Fails():
			if reason, note := v.astray(a, m.held); reason != "" {
				c.Reason, c.Note = reason, note
			}
		}
	}
}

// addView adds what one replica reports about the cluster.
func (c *Cluster) addView(said inspect.ClusterView) {
	if inspect.Worse(said.State, protocol.ClusterClosed) < 0 &&
		(c.State == "" || inspect.Worse(said.State, c.State) < 0) {
		c.State, c.Cause = said.State, said.Cause
	}
	c.Stuck += said.Stuck
	keys, writes := said.Running+said.Ready, said.Writes+said.WaitingWrites
	if keys+writes == 0 && inspect.Worse(said.State, protocol.ClusterClosed) == 0 {
		return // only shards that aren't served
	}
	if c.Waits == nil {
		c.Waits = &inspect.ClusterView{Cluster: c.Name}
	}
	w := c.Waits
	w.State, w.Cause = c.State, c.Cause
	w.Running += said.Running
	w.Ready += said.Ready
	w.Writes += said.Writes
	w.WaitingWrites += said.WaitingWrites
	w.WaitSeconds = max(w.WaitSeconds, said.WaitSeconds)
	if said.Limits != "" {
		w.Limits = said.Limits
	}
	for _, n := range said.Namespaces {
		w.Namespaces = inspect.AddWaiting(w.Namespaces, n)
	}
	w.Namespaces = w.Namespaces[:min(len(w.Namespaces), inspect.MaxWaiting)]
}

// bystander reports whether a replica can't serve a cluster of which others hold shards and it holds none. How the
// cluster answers such a replica delays no shard. findUnfit reports it.
func (v *survey) bystander(r *Replica, c *Cluster) bool {
	return c.Held > 0 && v.shards[tenancy{c.Name, r.Incarnation}] == 0 && r.Unfit.Of(c.Name) == plan.Unfit
}

// astray says that the credentials of a cluster lead to another one, and the way out; "" if they don't, as far as is
// known. Where a cluster didn't say which it is, its layout does.
func (v *survey) astray(a Answer, held map[keyspace.ClusterName]bool) (reason, note string) {
	for i := range v.Records.Layouts {
		l := &v.Records.Layouts[i].Spec
		if a.UID == "" && held[a.Cluster] && l.Cluster == string(a.Cluster) {
			a.UID = l.Layout.ClusterUID
		}
	}
	if a.UID == "" {
		return "", ""
	}
	other := ServedAs(v.Records.Layouts, string(a.Cluster), a.UID,
		func(name string) bool { return held[keyspace.ClusterName(name)] })
	wayOut := fmt.Sprintf("tenure cluster add %s --kubeconfig FILE puts those of the right cluster there", a.Cluster)
	foreign := a.Recorded != "" && a.Recorded != a.UID
	if !foreign {
		wayOut = "tenure cluster remove takes the wrong one of the two away"
	}
	switch {
	case other != "" && !held[a.Cluster]:
		return ReasonTwoNames, fmt.Sprintf("its credentials lead to the cluster that is served as %s, and a cluster is "+
			"served under one name alone: %s", other, wayOut)
	case foreign:
		return ReasonAnother, fmt.Sprintf("its credentials lead to a cluster whose namespace kube-system has the UID %s, "+
			"and annotation %s of its Secret is %s: %s; if this one is meant, tenure cluster remove %s and add it again",
			a.UID, kubeconfig.UIDAnnotation, a.Recorded, wayOut, a.Cluster)
	}
	return "", ""
}

// ServedAs returns another name under which the cluster of that UID is taken, by its layout; "" if there is none.
func ServedAs(layouts []tenurev1alpha1.Shard, name, uid string, taken func(name string) bool) string {
	for i := range layouts {
		l := &layouts[i].Spec
		if uid != "" && l.Layout.ClusterUID == uid && l.Cluster != name && taken(l.Cluster) {
			return l.Cluster
		}
	}
	return ""
}

// drawMap returns the [Cluster].Map of a cluster.
func (v *survey) drawMap(name keyspace.ClusterName) string {
	var text strings.Builder
	at := v.bySlot[name]
	for column := range mapColumns {
		mark := ""
		for slot := column * slots / mapColumns; slot < (column+1)*slots/mapColumns; slot++ {
			here := "."
			if at != nil && len(at[slot]) > 0 && at[slot][0].served() {
				here = at[slot][0].holder.Key
			}
			switch mark {
			case "", here:
				mark = here
			default:
				mark = "+"
			}
		}
		text.WriteString(mark)
	}
	return text.String()
}

func (v *survey) shard(e *entry) Shard {
	first, last := e.ID.Prefix.Slots()
	s := Shard{
		ID: e.ID, Cluster: e.ID.Cluster, Slots: first.String() + "-" + last.String(), Holder: e.Holder, Epoch: int64(e.Epoch),
		Served: e.served(), Moving: e.moving(), Objects: e.Objects, Load: e.Load, Pin: e.Pin, Assignee: e.Assignee,
	}
	if e.holder != nil {
		s.Replica, s.Key = e.holder.Name, e.holder.Key
	}
	if since := e.raw.Status.HeldSince; since != nil && e.holder != nil {
		s.HeldFor = sinceTime(v.Now, since.Time)
	}
	return s
}

func (v *survey) move(e *entry) Move {
	m := Move{Shard: e.ID, From: e.Holder, To: e.Assignee, Stage: "warming", AskedAgo: -1}
	if e.Warm == e.Assignee {
		m.Stage = "draining"
	}
	// Managed fields show when the assignee was last written. Only the fleet writes it; a person's annotations have
	// another field manager.
	for _, f := range e.raw.ManagedFields {
		if f.Subresource == "" && f.Time != nil && f.FieldsV1 != nil &&
			strings.Contains(string(f.FieldsV1.GetRawBytes()), `"f:assignee"`) {
			if ago := max(0, sinceTime(v.Now, f.Time.Time)); m.AskedAgo < 0 || ago < m.AskedAgo {
				m.AskedAgo = ago
			}
		}
	}
	return m
}
