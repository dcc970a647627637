package console

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/pkg/text"
	"github.com/tenure-dev/tenure/shard/inspect"
	"github.com/tenure-dev/tenure/shard/protocol"
)

const (
	// What a screen shows of long lists; the JSON has all.
	mostReplicas = 12
	mostClusters = 12
	mostMoves    = 6
	mostRecent   = 5
	mostFindings = 8
	mostWaiting  = 5
	mostDetails  = 2
)

// Status writes the fleet on one screen.
func (s *Screen) Status(f Fleet) error {
	s.head(f)
	s.findings(f.Findings)
	s.replicas(f)
	s.clusters(f)
	s.waiting(f)
	s.moves(f)
	s.NotRead(f.Unread)
	return s.err
}

// NotRead writes what couldn't be read.
func (s *Screen) NotRead(all []string) {
	for _, what := range all {
		s.line()
		s.wrap("not read: ", dim, what)
	}
}

func (s *Screen) head(f Fleet) {
	verdict := s.paint(bold+";"+green, "healthy")
	if !f.Healthy {
		verdict = s.paint(bold+";"+red, "something is wrong")
	}
	t := f.Totals
	s.line(verdict, fmt.Sprintf(": %s, %s in %s, %s", count(t.Replicas, "replica"), count(t.Shards, "shard"),
		count(t.Clusters, "cluster"), count(int(t.Objects), "object")))
	where := fmt.Sprintf("namespace %s of %s, %s", f.Namespace, f.Home, f.Taken.Format("2006-01-02 15:04:05 MST"))
	s.line(s.paint(dim, fit(text.Line(where, longest), width)))
}

func (s *Screen) findings(all []Finding) {
	for i, x := range all {
		if i == mostFindings {
			s.line(fmt.Sprintf("... and %d more; -o json has all", len(all)-i))
			return
		}
		if i == 0 {
			s.line()
		}
		style, mark := yellow, "  note  "
		if x.Severity == Wrong {
			style, mark = red, "! WRONG "
		}
		s.wrap(mark, style, x.What)
		do := x.Do
		if x.Alert != "" && x.Severity == Wrong {
			do = strings.TrimSuffix(do, ".") + " [runbook: " + x.Alert + "]"
		}
		if do != "" {
			s.wrap("        ", dim, do)
		}
	}
}

func (s *Screen) replicas(f Fleet) {
	watched := false
	rows := make([][]cell, 0, len(f.Replicas))
	for _, r := range f.Replicas {
		watched = watched || r.Watched
		style := map[ReplicaState]string{Live: green, Leaving: yellow}[r.State]
		if style == "" {
			style = red
		}
		renewed := "-"
		if r.State != Missing {
			renewed = fmt.Sprintf("%s ago of %s", age(r.RenewedAgo), age(r.LeaseDuration))
		}
		who := string(r.Incarnation)
		if r.Coordinator {
			who += " *"
		}
		rows = append(rows, []cell{
			left(r.Key), left(who), styled(style, string(r.State)), right(renewed),
			num(r.Shards), num(r.Objects), right(fmt.Sprintf("%.2f", r.Load)), left(r.Build),
		})
	}
	s.line()
	if len(rows) == 0 {
		s.line("no replicas")
		return
	}
	s.table([]string{"", "REPLICA", "STATE", "LEASE RENEWED", "SHARDS", "OBJECTS", "LOAD", "BUILD"},
		rows[:min(len(rows), mostReplicas)])
	s.more(len(rows), mostReplicas, "replica")
	clock := "renewed: by its own clock"
	if watched {
		clock = "renewed: as watched"
	}
	s.wrap("", dim, "* coordinates; load: busy seconds per second; "+clock)
}

func (s *Screen) clusters(f Fleet) {
	s.line()
	if len(f.Clusters) == 0 {
		s.line("no workload clusters")
		return
	}
	order := slices.Clone(f.Clusters)
	if len(order) > mostClusters { // those with trouble first
		slices.SortStableFunc(order, func(a, b Cluster) int { return b.Trouble() - a.Trouble() })
	}
	var rows [][]cell
	for _, c := range order[:min(len(order), mostClusters)] {
		answer := styled(green, "answers")
		switch {
		case c.Removed:
			answer = styled(dim, "removed")
		case c.Reason == "":
			answer = styled(dim, "not asked")
		case c.Reason == ReasonNotFromHere:
			answer = styled(dim, "not from here")
		case c.Trouble() > 1:
			answer = styled(red, c.Reason)
		case c.State != "":
			answer = styled(yellow, string(c.State))
		}
		held := fmt.Sprintf("%d/%d", c.Held, c.Shards)
		if c.Stuck > 0 {
			held += fmt.Sprintf(" (%d stuck)", c.Stuck)
		}
		rows = append(rows, []cell{left(string(c.Name)), answer, right(held), num(c.Moving), num(c.Objects),
			{text: c.Map, whole: true}}) // a column of it that is cut out moves all the others
	}
	s.table([]string{"CLUSTER", "API SERVER", "HELD", "MOVING", "OBJECTS", "WHO SERVES WHICH PART"}, rows)
	s.more(len(order), mostClusters, "cluster")
	s.line(s.paint(dim, "a letter is a replica's, . nobody's, + of several; the line is the hash space"))
}

// waiting shows what waits in clusters, by what replicas say.
func (s *Screen) waiting(f Fleet) {
	var busy []Cluster
	for _, c := range f.Clusters {
		if c.Waits != nil && !c.Removed {
			busy = append(busy, c)
		}
	}
	if len(busy) == 0 {
		return
	}
	slices.SortStableFunc(busy, func(a, b Cluster) int { return cmp.Compare(b.Waits.WaitSeconds, a.Waits.WaitSeconds) })
	var rows [][]cell
	for _, c := range busy[:min(len(busy), mostWaiting)] {
		w := c.Waits
		rows = append(rows, []cell{
			left(string(c.Name)), num(w.Running), num(w.Ready), right(age(Seconds(w.WaitSeconds))), num(w.Writes),
			num(w.WaitingWrites),
		})
	}
	s.line()
	s.table([]string{"WAITING", "AT WORK", "READY", "LONGEST", "WRITES", "HELD UP"}, rows)
	s.more(len(busy), mostWaiting, "cluster")
	for _, c := range busy[:min(len(busy), mostDetails)] {
		if detail := waitsOf(c.Waits); detail != "" {
			s.wrap(fmt.Sprintf("  %s: ", fit(text.Line(string(c.Name), text.Cell), 20)), dim, detail)
		}
	}
}

// waitsOf says which namespaces wait longest, and what a replica's limits are.
func waitsOf(w *inspect.ClusterView) string {
	var parts []string
	for _, n := range w.Namespaces {
		parts = append(parts, fmt.Sprintf("%s %s (%s)", fit(text.Line(n.Namespace, 63), 30), age(Seconds(n.WaitSeconds)),
			count(n.Keys, "key")))
	}
	all := ""
	if len(parts) > 0 {
		all = "waiting longest: " + strings.Join(parts, ", ")
	}
	if w.Limits != "" {
		all = strings.TrimPrefix(all+"; limits of a replica: "+w.Limits, "; ")
	}
	return all
}

func (s *Screen) moves(f Fleet) {
	if len(f.Moves) > 0 {
		var rows [][]cell
		for _, m := range f.Moves[:min(len(f.Moves), mostMoves)] {
			asked := "unknown"
			if m.AskedAgo >= 0 {
				asked = age(m.AskedAgo) + " ago"
			}
			rows = append(rows, []cell{left(m.Shard.String()), left(string(m.From)), left(string(m.To)),
				left(m.Stage), right(asked)})
		}
		s.line()
		s.table([]string{"MOVING", "FROM", "TO", "STAGE", "ASKED FOR"}, rows)
		s.more(len(f.Moves), mostMoves, "move")
	}
	if len(f.Recent) == 0 {
		return
	}
	var rows [][]cell
	for _, c := range f.Recent[:min(len(f.Recent), mostRecent)] {
		style := map[protocol.MoveKind]string{protocol.Crash: yellow}[c.Kind]
		rows = append(rows, []cell{
			left(c.Shard.String()), styled(style, string(c.Kind)), left(cmp.Or(string(c.From), "nobody")),
			left(cmp.Or(string(c.To), "nobody")), num(c.Epoch),
			right(age(sinceTime(f.Taken, c.At)) + " ago"),
		})
	}
	s.line()
	s.table([]string{"LAST MOVED", "BY", "FROM", "TO", "EPOCH", "WHEN"}, rows)
}

func (s *Screen) more(n, shown int, noun string) {
	if n > shown {
		s.line(s.paint(dim, fmt.Sprintf("... and %d more %ss; -o json has all", n-shown, noun)))
	}
}
