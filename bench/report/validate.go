package report

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/tenure-dev/tenure/bench/stats"
)

// Validate reports what a file lacks that the report of a run has: the results of each fleet, and both bounds of each
// interval. It says nothing of figures; what wasn't measured may be absent.
func (r *Report) Validate() error {
	var errs []error
	fleet := func(field string, results *Results) {
		if results == nil {
			errs = append(errs, fmt.Errorf("%s is missing", field))
		}
	}
	fleet("results", r.Results)
	for i, s := range r.Sweep {
		fleet(fmt.Sprintf("sweep[%d].results", i), s.Results)
	}
	for _, name := range slices.Sorted(maps.Keys(r.References)) {
		fleet("references."+name, r.References[name])
	}
	bounds := func(field string, all map[string]stats.Ratio) {
		for _, name := range slices.Sorted(maps.Keys(all)) {
			if one := all[name]; (one.Low == nil) != (one.High == nil) {
				errs = append(errs, fmt.Errorf("%s.%s has one bound of two: low or high is missing", field, name))
			}
		}
	}
	bounds("ratios", r.Ratios)
	bounds("intervals", r.Intervals)
	return errors.Join(errs...)
}
