package compare

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"text/tabwriter"

	"github.com/tenure-dev/tenure/bench/report"
	"github.com/tenure-dev/tenure/bench/samples"
	"github.com/tenure-dev/tenure/bench/stats"
)

// Pooled is what the turns of several runs say together.
type Pooled struct {
	Runs   int
	Ratios map[string]stats.Ratio
}

// Pool puts the turns of several runs of one scenario together. Pairs stay pairs: a turn is compared with that of its own
// lot, so that runs may differ in speed.
func Pool(reports []*report.Report) (*Pooled, error) {
	if len(reports) == 0 {
		return nil, errors.New("no reports")
	}
	turns := map[string][]report.Round{}
	for _, r := range reports {
		switch {
		case r.Scenario != reports[0].Scenario:
			return nil, fmt.Errorf("one is of scenario %s, another of %s", reports[0].Scenario, r.Scenario)
		case r.Config.Size != reports[0].Config.Size:
			return nil, fmt.Errorf("one is of size %q, another of %q", reports[0].Config.Size, r.Config.Size)
		case !r.Valid:
			return nil, fmt.Errorf("a report of scenario %s is not valid: %v", r.Scenario, r.Reasons)
		case r.Results == nil || len(r.Results.Turns[samples.Untraced]) == 0:
			return nil, fmt.Errorf("a report of scenario %s has no turns: only those of fleet.tracingTurns have", r.Scenario)
		}
		for name, rounds := range r.Results.Turns {
			turns[name] = append(turns[name], rounds...)
		}
	}
	rng := rand.New(rand.NewPCG(uint64(len(reports)), 42))
	return &Pooled{Runs: len(reports), Ratios: report.TurnRatios(turns, samples.Untraced, rng)}, nil
}

// Text writes the ratios for a person.
func (p *Pooled) Text(w io.Writer) error {
	columns := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(columns, "figure/turns\t%s over it, %s\n", samples.Untraced, report.Count(p.Runs, "run"))
	for _, figure := range slices.Sorted(maps.Keys(p.Ratios)) {
		fmt.Fprintf(columns, "%s\t%s\n", figure, report.RatioText(p.Ratios[figure]))
	}
	return columns.Flush()
}
