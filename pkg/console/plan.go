package console

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/shard/keyspace"
	"github.com/tenure-dev/tenure/shard/plan"
	"github.com/tenure-dev/tenure/shard/protocol"
)

// Wish is a change to the fleet that is only imagined.
type Wish struct {
	// Replicas is how many there should be; 0 means as many as there are.
	Replicas int
	// Drain names the replicas that should hold nothing.
	Drain []string
}

// Plan is what would move. It is the answer of `tenure plan`.
type Plan struct {
	Replicas []Planned  `json:"replicas"`
	Moves    []PlanMove `json:"moves"`
	// Unplaced are shards that would have no holder, since no replica could be given them.
	Unplaced []keyspace.ShardID `json:"unplaced,omitempty"`
	// Assumed says what was made up.
	Assumed []string `json:"assumed,omitempty"`
	// Unread is what couldn't be read. A replica whose Lease is among it looks as if it were missing.
	Unread []string `json:"unread,omitempty"`
}

// Planned is one replica before and after.
type Planned struct {
	Name         string  `json:"name"`
	Incarnation  string  `json:"incarnation"`
	State        string  `json:"state"` // live, leaving, quiet; or added, removed, drained by the wish
	ShardsBefore int     `json:"shardsBefore"`
	ShardsAfter  int     `json:"shardsAfter"`
	LoadBefore   float64 `json:"loadBefore"`
	LoadAfter    float64 `json:"loadAfter"`
	Objects      int64   `json:"objectsAfter"`
}

// PlanMove is one move of a plan.
type PlanMove struct {
	Shard   keyspace.ShardID     `json:"shard"`
	From    protocol.Incarnation `json:"from,omitempty"`
	To      protocol.Incarnation `json:"to"`
	Reason  plan.Reason          `json:"reason"`
	Objects int64                `json:"objects"`
}

// Foresee runs the coordinator's planner over the records as if the wish were true, until nothing moves any more.
func Foresee(s Snapshot, wish Wish) (Plan, error) {
	v := surveyOf(s)
	if len(v.liveNames()) == 0 {
		text := "no replica is alive in this fleet: --fleet and --namespace say whose replicas are meant"
		if unread := slices.Concat(s.Unread, v.members.unread); len(unread) > 0 {
			text += "; not read: " + strings.Join(unread, "; ")
		}
		return Plan{}, errors.New(text)
	}
	changes, assumed, err := v.imagine(wish)
	if err != nil {
		return Plan{}, err
	}
	shards := v.planShards()
	objects := map[keyspace.ShardID]int64{}
	for _, e := range v.entries {
		objects[e.ID] = e.Objects
	}
	p := Plan{Moves: []PlanMove{}, Assumed: assumed, Unread: slices.Concat(s.Unread, v.members.unread)}
	replicas := v.planReplicas(changes)
	staying := map[protocol.Incarnation]plan.Replica{}
	for _, r := range replicas {
		if !r.Leaving {
			staying[r.ID] = r
		}
	}
	for _, m := range settle(shards, replicas) {
		p.Moves = append(p.Moves, PlanMove{Shard: m.Shard, From: m.From, To: m.To, Reason: m.Reason,
			Objects: objects[m.Shard]})
	}
	for _, sh := range shards {
		if v.unwanted[sh.ID.Cluster] {
			continue
		}
		// The planner leaves a shard where it is if it is on its way, or if no replica is left to take it.
		_, stays := staying[sh.Holder]
		to, comes := staying[sh.Assignee]
		if !stays && (!comes || to.Unfit.Of(sh.ID.Cluster) != plan.Fit) {
			p.Unplaced = append(p.Unplaced, sh.ID)
		}
	}
	p.Replicas = v.compare(changes, shards, objects)
	return p, nil
}

// imagine applies a wish to the list of replicas. changes is what becomes of a replica, by incarnation. assumed
// says what the wish left open.
func (v *survey) imagine(wish Wish) (changes map[protocol.Incarnation]string, assumed []string, err error) {
	changes = map[protocol.Incarnation]string{}
	for _, name := range wish.Drain {
		found := false
		for _, r := range v.replicas {
			if r.Acts() && (r.Name == name || string(r.Incarnation) == name) {
				changes[r.Incarnation], found = "drained", true
			}
		}
		if !found {
			return nil, nil, &UsageError{Text: fmt.Sprintf("--drain %s: no live replica has that name; there are %s", name,
				list(v.liveNames(), ""))}
		}
	}
	if wish.Replicas == 0 {
		return changes, nil, nil
	}
	var staying []*Replica
	for _, r := range v.replicas {
		if r.State == Live && changes[r.Incarnation] == "" {
			staying = append(staying, r)
		}
	}
	for i := len(staying); i > wish.Replicas; i-- {
		changes[staying[i-1].Incarnation] = "removed"
	}
	if less := len(staying) - wish.Replicas; less > 0 {
		assumed = append(assumed, fmt.Sprintf("%s would be removed: the last by name. Name others with --drain",
			count(less, "replica")))
	}
	for i := len(staying); i < wish.Replicas; i++ {
		changes[protocol.Incarnation(fmt.Sprintf("new-%d", i-len(staying)+1))] = "added"
	}
	if more := wish.Replicas - len(staying); more > 0 {
		assumed = append(assumed, fmt.Sprintf("%s would be added, of weight 1", count(more, "replica")))
	}
	return changes, assumed, nil
}

func (v *survey) liveNames() (names []string) {
	for _, r := range v.replicas {
		if r.Acts() {
			names = append(names, r.Name)
		}
	}
	return names
}

// settle plans and makes moves until nothing moves, and changes the shards accordingly. It returns one move for each
// shard that moves, in order.
func settle(shards []plan.Shard, replicas []plan.Replica) (all []plan.Move) {
	at, moved := map[keyspace.ShardID]int{}, map[keyspace.ShardID]int{}
	for i := range shards {
		at[shards[i].ID] = i
	}
	for range 1000 { // the planner guarantees an end; the bound is for the case that it has a bug
		moves := plan.Plan(shards, replicas)
		if len(moves) == 0 {
			break
		}
		for _, m := range moves {
			sh := &shards[at[m.Shard]]
			sh.Assignee, sh.Holder = m.To, m.To
			if i, again := moved[m.Shard]; again {
				all[i].To = m.To
			} else if m.To != m.From { // else a move that never was made is called off
				moved[m.Shard] = len(all)
				all = append(all, m)
			}
		}
	}
	return slices.DeleteFunc(all, func(m plan.Move) bool { return m.From == m.To }) // it would come back
}

// planShards returns the records as the coordinator gives them to its planner.
func (v *survey) planShards() []plan.Shard {
	shards := make([]plan.Shard, 0, len(v.entries))
	for _, e := range v.entries {
		if !v.counts(e) {
			continue
		}
		s := plan.Shard{ID: e.ID, Holder: e.Holder, Assignee: e.Assignee, Pin: e.Pin}
		if e.holder != nil && (e.holder.State == Sealed || e.holder.State == Missing) {
			s.Holder = ""
		}
		shards = append(shards, s)
	}
	return shards
}

// planReplicas returns the replicas that may be alive, with the wish applied.
func (v *survey) planReplicas(changes map[protocol.Incarnation]string) []plan.Replica {
	var all []plan.Replica
	for _, r := range v.replicas {
		if r.State == Sealed || r.State == Missing {
			continue
		}
		all = append(all, plan.Replica{
			ID: r.Incarnation, Name: r.Name, Weight: r.Weight,
			Leaving: r.State != Live || changes[r.Incarnation] != "", Unfit: r.Unfit,
		})
	}
	for id, what := range changes {
		if what == "added" {
			all = append(all, plan.Replica{ID: id, Name: string(id), Weight: 1})
		}
	}
	return all
}

// compare sets each replica's shards before and after side by side.
func (v *survey) compare(changes map[protocol.Incarnation]string, after []plan.Shard,
	objects map[keyspace.ShardID]int64) []Planned {
	rows := map[protocol.Incarnation]*Planned{}
	for _, r := range v.replicas {
		rows[r.Incarnation] = &Planned{Name: r.Name, Incarnation: string(r.Incarnation),
			State: cmp.Or(changes[r.Incarnation], string(r.State))}
	}
	for id, what := range changes {
		if rows[id] == nil {
			rows[id] = &Planned{Name: string(id), Incarnation: string(id), State: what}
		}
	}
	loads := map[keyspace.ShardID]float64{}
	for _, e := range v.entries {
		loads[e.ID] = e.Load
		if r := rows[e.Holder]; r != nil {
			r.ShardsBefore++
			r.LoadBefore += e.Load
		}
	}
	for _, s := range after {
		if r := rows[cmp.Or(s.Assignee, s.Holder)]; r != nil {
			r.ShardsAfter++
			r.LoadAfter += loads[s.ID]
			r.Objects += objects[s.ID]
		}
	}
	planned := make([]Planned, 0, len(rows))
	for _, id := range slices.Sorted(maps.Keys(rows)) {
		planned = append(planned, *rows[id])
	}
	return planned
}
