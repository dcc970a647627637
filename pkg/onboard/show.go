package onboard

import (
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
	if err := s.Table([]string{"CLUSTER", "WHAT", "DONE"}, rows); err != nil {
		return err
	}
	for _, note := range r.Notes {
		if err := s.Note("note: ", note); err != nil {
			return err
		}
	}
	return nil
}

// Show writes what was found as a table for a person, and every right that is missing.
func (e Examination) Show(s *console.Screen) error {
	for _, f := range e.Findings {
		mark := fmt.Sprintf("%-6s%-12s ", map[bool]string{true: "ok", false: "WRONG"}[f.OK], f.Check)
		if err := s.Note(mark, f.Says); err != nil {
			return err
		}
	}
	if len(e.Missing) == 0 {
		return nil
	}
	if err := s.Note("", ""); err != nil {
		return err
	}
	var rows [][]string
	for _, r := range e.Missing {
		namespace := r.Namespace
		if namespace == "" {
			namespace = "(all)"
		}
		rows = append(rows, []string{r.String(), namespace, r.Role})
	}
	return s.Table([]string{"MISSING RIGHT", "NAMESPACE", "GIVEN BY ROLE"}, rows)
}

// ShowEntries writes clusters as a table for a person.
func ShowEntries(s *console.Screen, all []Entry, now time.Time) error {
	if len(all) == 0 {
		return s.Note("", "no clusters: tenure cluster add NAME adds one")
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
		server := e.Server
		if server == "" {
			server = "-"
		}
		rows = append(rows, []string{
			e.Name, server, until, fmt.Sprintf("%d/%d", e.Service.Held, e.Service.Shards),
			fmt.Sprint(e.Service.Replicas), e.State,
		})
	}
	if err := s.Table([]string{"NAME", "SERVER", "EXPIRES", "HELD", "REPLICAS", "STATE"}, rows); err != nil {
		return err
	}
	return s.NotRead(all[0].Unread)
}
