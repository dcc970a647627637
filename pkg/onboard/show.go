package onboard

import (
	"cmp"
	"fmt"
	"time"

	"github.com/tenure-dev/tenure/pkg/console"
)

// Show writes the report as a table for a person.
func (r Report) Show(s *console.Screen) error {
	var rows [][]string
	for _, l := range r.Lines {
		rows = append(rows, []string{l.Where, l.What, l.Done})
	}
	s.Table([]string{"CLUSTER", "WHAT", "DONE"}, rows)
	for _, note := range r.Notes {
		s.Note("note: ", note)
	}
	return s.Err()
}

// Show writes what was found as a table for a person, and every right that is missing.
func (e Examination) Show(s *console.Screen) error {
	for _, f := range e.Findings {
		mark := "ok"
		if !f.OK {
			mark = "WRONG"
		}
		s.Note(fmt.Sprintf("%-6s%-12s ", mark, f.Check), f.Says)
	}
	if len(e.Missing) == 0 {
		return s.Err()
	}
	s.Note("", "")
	var rows [][]string
	for _, r := range e.Missing {
		rows = append(rows, []string{r.String(), cmp.Or(r.Namespace, "(all)"), r.Role})
	}
	s.Table([]string{"MISSING RIGHT", "NAMESPACE", "GIVEN BY ROLE"}, rows)
	return s.Err()
}

// ShowEntries writes clusters as a table for a person.
func ShowEntries(s *console.Screen, all []Entry, now time.Time) error {
	if len(all) == 0 {
		s.Note("", "no clusters: tenure cluster add NAME adds one")
		return s.Err()
	}
	var rows [][]string
	for _, e := range all {
		until := "-"
		if e.Expires != nil {
			until = "expired"
			if left := e.Expires.Sub(now); left > 48*time.Hour {
				until = fmt.Sprintf("in %dd", int(left.Hours()/24))
			} else if left >= time.Minute {
				until = "in " + span(left.Truncate(time.Minute))
			} else if left > 0 {
				until = "in " + left.Round(time.Second).String()
			}
		}
		rows = append(rows, []string{
			e.Name, cmp.Or(e.Server, "-"), until, fmt.Sprintf("%d/%d", e.Service.Held, e.Service.Shards),
			fmt.Sprint(e.Service.Replicas), e.State,
		})
	}
	s.Table([]string{"NAME", "SERVER", "EXPIRES", "HELD", "REPLICAS", "STATE"}, rows)
	s.NotRead(all[0].Unread)
	return s.Err()
}
