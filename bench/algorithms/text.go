package algorithms

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// WriteText shows the table for reading in a terminal, one block for each size.
func (t Table) WriteText(w io.Writer) error {
	columns := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	for i, row := range t.Rows {
		if i == 0 || row.Replicas != t.Rows[i-1].Replicas || row.Clusters != t.Rows[i-1].Clusters {
			// A flush ends the columns' common width, so that each block has its own.
			if err := columns.Flush(); err != nil {
				return fmt.Errorf("writing the comparison: %w", err)
			}
			if i > 0 {
				fmt.Fprintln(w)
			}
			fmt.Fprintf(w, "%d clusters, %d shards over %d replicas (%s names); max/mean is at best %.3f\n",
				row.Clusters, row.Shards, row.Replicas, t.Config.Names, row.BestMaxOverMean)
			fmt.Fprintln(columns, "algorithm\tmax/mean\tidle\tjoin moves\tof least\tmax/mean\tleave moves\tof "+
				"least\tmax/mean\tplace ms\tjoin ms\tleave ms\t")
		}
		fmt.Fprintf(columns, "%s\t%.3f\t%d\t%s\t", row.Algorithm, row.MaxOverMean, row.Idle, row.Join.text())
		if row.Leave == nil {
			fmt.Fprintf(columns, "-\t-\t-\t%.2f\t%.2f\t-\t\n", row.PlaceMillis, row.Join.Millis)
			continue
		}
		fmt.Fprintf(columns, "%s\t%.2f\t%.2f\t%.2f\t\n", row.Leave.text(), row.PlaceMillis, row.Join.Millis, row.Leave.Millis)
	}
	if err := columns.Flush(); err != nil {
		return fmt.Errorf("writing the comparison: %w", err)
	}
	return nil
}

// text is the moves, the least there have to be, and the balance afterwards.
func (c Change) text() string {
	return fmt.Sprintf("%d\t%d\t%.3f", c.Moves, c.Minimal, c.MaxOverMean)
}
