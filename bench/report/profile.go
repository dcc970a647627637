package report

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"

	"github.com/google/pprof/profile"
)

// Profile is where the processors' time went, by function, in µs per At: a function's share of what was sampled, of
// what the processes used by their own clocks. Profiles cover a part of each round, in which few Ats may be done.
type Profile struct {
	// Fleets are the columns, ours first.
	Fleets []string     `json:"fleets"`
	Rows   []ProfileRow `json:"rows"`
}

// ProfileRow is one function, in the order of the fleets.
type ProfileRow struct {
	Function string `json:"function"`
	// Flat is its own time, Cum with all that it calls.
	Flat []float64 `json:"flat_us_per_at"`
	Cum  []float64 `json:"cum_us_per_at"`
}

// Profiled are the CPU profiles of one fleet's processes, and the seconds of a processor that they used per At; nil if
// that isn't known.
type Profiled struct {
	Fleet    string
	Profiles []*profile.Profile
	PerAt    *float64
}

// total is what was sampled, in ns.
func (f Profiled) total() (ns int64) {
	for _, p := range f.Profiles {
		for _, s := range p.Sample {
			ns += s.Value[len(s.Value)-1] // the last value is the time
		}
	}
	return ns
}

// everything is the row that sums a profile up.
const everything = "(everything)"

// profileRows is how many functions are listed.
const profileRows = 40

// NewProfile sets the profiles of fleets side by side: the functions in which any of them spends the most itself, below
// a row of everything. A fleet of which nothing was sampled is left out.
func NewProfile(fleets []Profiled) *Profile {
	fleets = slices.DeleteFunc(slices.Clone(fleets), func(f Profiled) bool { return f.PerAt == nil || f.total() == 0 })
	if len(fleets) == 0 {
		return nil
	}
	out := &Profile{}
	rows := map[string]*ProfileRow{}
	for i, f := range fleets {
		out.Fleets = append(out.Fleets, f.Fleet)
		add := func(function string, flat bool, us float64) {
			r := rows[function]
			if r == nil {
				r = &ProfileRow{Function: function, Flat: make([]float64, len(fleets)), Cum: make([]float64, len(fleets))}
				rows[function] = r
			}
			if r.Cum[i] += us; flat {
				r.Flat[i] += us
			}
		}
		perNS := *f.PerAt * 1e6 / float64(f.total())
		for _, p := range f.Profiles {
			for _, s := range p.Sample {
				us := float64(s.Value[len(s.Value)-1]) * perNS
				add(everything, true, us)
				seen := map[string]bool{}
				for depth, location := range s.Location {
					for inline, line := range location.Line {
						if name := line.Function.Name; !seen[name] {
							seen[name] = true
							add(name, depth == 0 && inline == 0, us)
						}
					}
				}
			}
		}
	}
	sorted := slices.SortedFunc(maps.Values(rows), func(a, b *ProfileRow) int {
		return cmp.Or(cmp.Compare(slices.Max(b.Flat), slices.Max(a.Flat)), cmp.Compare(a.Function, b.Function))
	})
	for _, r := range sorted[:min(len(sorted), profileRows)] {
		out.Rows = append(out.Rows, *r)
	}
	return out
}

// text writes the table for a person.
func (p *Profile) text(w io.Writer) {
	columns := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(columns, "CPU µs per At\t")
	for _, f := range p.Fleets {
		fmt.Fprintf(columns, "%s\tcum\t", f)
	}
	for _, r := range p.Rows {
		fmt.Fprint(columns, "\n\t")
		for i := range p.Fleets {
			fmt.Fprintf(columns, "%.1f\t%.1f\t", r.Flat[i], r.Cum[i])
		}
		fmt.Fprintf(columns, "  %s", r.Function)
	}
	fmt.Fprint(columns, "\n\n")
	columns.Flush()
}
