package console

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/tenure-dev/tenure/shard/keyspace"
	"github.com/tenure-dev/tenure/shard/plan"
	"github.com/tenure-dev/tenure/shard/protocol"
)

// Why writes the chain, one link a line, with what is wrong under it.
func (s *Screen) Why(w Why) error {
	style := green
	if !w.Healthy {
		style = red
	}
	s.wrap("", bold+";"+style, fmt.Sprintf("%s in %s on %s: %s", w.Object, w.Namespace, w.Cluster, w.Verdict))
	s.line()
	for _, l := range w.Links {
		if l.Trouble == "" {
			s.wrap(fmt.Sprintf("  %-9s ", l.Name), plain, l.Value)
			continue
		}
		s.wrap(fmt.Sprintf("! %-9s ", l.Name), red, l.Value)
		s.wrap("            ", red, l.Trouble)
		if l.Do != "" {
			s.wrap("            -> ", dim, l.Do)
		}
	}
	s.NotRead(w.Unread)
	return s.err
}

// mostRoutes is how many lines of moves a plan shows; the JSON has each move.
const mostRoutes = 20

// route sums up the moves from one replica to another.
type route struct {
	from, to protocol.Incarnation
	reason   plan.Reason
	shards   int
	objects  int64
	first    keyspace.ShardID
}

// Plan writes what would move.
func (s *Screen) Plan(p Plan) error {
	switch {
	case len(p.Moves) == 0 && len(p.Unplaced) == 0:
		s.line(s.paint(bold+";"+green, "nothing would move"))
	case len(p.Moves) > 0:
		objects := int64(0)
		for _, m := range p.Moves {
			objects += m.Objects
		}
		s.line(s.paint(bold, fmt.Sprintf("%s would move, with %s", count(len(p.Moves), "shard"),
			count(int(objects), "object"))))
	}
	for _, text := range p.Assumed {
		s.wrap("", dim, text)
	}
	if len(p.Unplaced) > 0 {
		s.wrap("! ", red, count(len(p.Unplaced), "shard")+" would have no holder: no replica is left to take them")
	}
	var rows [][]cell
	for _, r := range p.Replicas {
		style := map[string]string{"added": green, "removed": yellow, "drained": yellow, "quiet": red, "sealed": red,
			"missing": red}[r.State]
		rows = append(rows, []cell{
			left(r.Name), styled(style, r.State), num(r.ShardsBefore), num(r.ShardsAfter),
			right(fmt.Sprintf("%.2f", r.LoadBefore)), right(fmt.Sprintf("%.2f", r.LoadAfter)), num(r.Objects),
		})
	}
	s.line()
	s.table([]string{"REPLICA", "STATE", "SHARDS", "AFTER", "LOAD", "AFTER", "OBJECTS AFTER"}, rows)
	s.NotRead(p.Unread)
	if len(p.Moves) == 0 {
		return s.err
	}
	routes := routesOf(p.Moves)
	rows = nil
	for _, r := range routes[:min(len(routes), mostRoutes)] {
		which := r.first.String()
		if r.shards > 1 {
			which += fmt.Sprintf(" and %d more", r.shards-1)
		}
		rows = append(rows, []cell{left(cmp.Or(string(r.from), "nobody")), left(string(r.to)), left(string(r.reason)),
			num(r.shards), num(r.objects), left(which)})
	}
	s.line()
	s.table([]string{"FROM", "TO", "WHY", "SHARDS", "OBJECTS", "WHICH"}, rows)
	s.more(len(routes), mostRoutes, "line")
	return s.err
}

// routesOf groups moves, in the order in which they come.
func routesOf(moves []PlanMove) []route {
	var routes []route
	for _, m := range moves {
		at := slices.IndexFunc(routes, func(r route) bool { return r.from == m.From && r.to == m.To && r.reason == m.Reason })
		if at < 0 {
			at = len(routes)
			routes = append(routes, route{from: m.From, to: m.To, reason: m.Reason, first: m.Shard})
		}
		routes[at].shards++
		routes[at].objects += m.Objects
	}
	return routes
}
