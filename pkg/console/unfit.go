package console

import (
	"fmt"

	"github.com/tenure-dev/tenure/pkg/text"
	"github.com/tenure-dev/tenure/shard/plan"
)

// findUnfit reports replicas that say they can't serve a cluster, or can't serve or watch some shards that they hold,
// and those that still hold shards of a cluster that was removed. A shard that can't be served waits until its holder
// can serve it, or until another replica says that it can.
func (v *survey) findUnfit() []Finding {
	var all unfit
	for _, c := range v.clusters {
		var cant, holding, leaving []string
		stuck, ends := 0, 0
		do := "the log of the holder names the kinds that can't be listed or watched, and why; if its caches were " +
			"never filled, another replica gets the shards after three lease durations or more"
		for _, r := range v.replicas {
			held := v.shards[tenancy{c.Name, r.Incarnation}]
			switch {
			case v.unwanted[c.Name]:
				if held > 0 && (r.Acts() || r.State == Quiet) {
					leaving, ends = append(leaving, string(r.Incarnation)), ends+held
				}
				continue
			case !r.Acts():
				continue
			case r.Unfit.Of(c.Name) == plan.Unfit:
				cant = append(cant, string(r.Incarnation))
				do = "they move within seconds to a replica that can; if they stay, none can: see why the holder can't"
			default:
				held = min(held, r.stuck(c.Name))
			}
			if held > 0 {
				holding = append(holding, string(r.Incarnation))
			}
			stuck += held
		}
		switch {
		case ends > 0:
			all.add(Finding{Note, AlertNotServed, removed, "their running reconciles end first, and tenure cluster remove " +
				"waits for that; if this stays, see the log of the holder"}, c, leaving, ends, fmt.Sprintf(
				"cluster %s was removed, with %s still held by %s", c.Name, count(ends, "shard"), list(leaving, "")))
		case stuck > 0:
			all.add(Finding{Wrong, AlertNotServed, "", do}, c, holding, stuck,
				fmt.Sprintf("%s of cluster %s held by replicas that can't serve or watch it: %s", count(stuck, "shard"), c.Name,
					list(holding, "")))
		case len(cant) > 0:
			who := "others serve"
			if c.Held == 0 {
				who = "nobody serves"
			}
			all.add(Finding{Note, AlertNotServed, who, "see whether the way from there to the cluster's API server is open"}, c,
				cant, 0, fmt.Sprintf("cluster %s can't be served by %s; %s it", c.Name, list(cant, ""), who))
		}
	}
	return all.findings()
}

// removed is what findings about clusters that were removed have in common.
const removed = "removed"

// unfit collects what [survey.findUnfit] finds of each cluster.
type unfit struct {
	order []Finding
	by    map[Finding]*unfitClusters // by what their findings have in common
}

type unfitClusters struct {
	each               []Finding
	clusters, replicas []string
	shards             int
}

// add adds the finding about one cluster, and what a finding about many of them needs.
func (u *unfit) add(common Finding, c *Cluster, replicas []string, shards int, what string) {
	if u.by[common] == nil {
		if u.by == nil {
			u.by = map[Finding]*unfitClusters{}
		}
		u.by[common], u.order = &unfitClusters{}, append(u.order, common)
	}
	s := u.by[common]
	s.each = append(s.each, Finding{common.Severity, common.Alert, what, common.Do})
	s.clusters, s.replicas = append(s.clusters, string(c.Name)), append(s.replicas, replicas...)
	s.shards += shards
}

// findings returns one finding for each cluster if they are a few, and else one for all that have something in common.
func (u *unfit) findings() (found []Finding) {
	for _, common := range u.order {
		s := u.by[common]
		if len(s.each) <= examples {
			found = append(found, s.each...)
			continue
		}
		who := list(text.Sorted(s.replicas), "")
		what := fmt.Sprintf("%s of %s are held by replicas that can't serve or watch them (%s): %s",
			count(s.shards, "shard"), count(len(s.clusters), "cluster"), who, list(s.clusters, ""))
		switch {
		case common.What == removed:
			what = fmt.Sprintf("%s were removed, with %s still held by %s", list(s.clusters, "cluster"),
				count(s.shards, "shard"), who)
		case s.shards == 0:
			what = fmt.Sprintf("%s can't be served by some replicas (%s); %s them", list(s.clusters, "cluster"), who,
				common.What)
		}
		found = append(found, Finding{common.Severity, common.Alert, what, common.Do})
	}
	return found
}
