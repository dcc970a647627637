package plan

import (
	"cmp"
	"slices"
)

// part is one replica's claim to a number of shards, and what it is granted.
type part struct {
	weight int
	have   int
	// least and most bound the grant, as far as shards can't leave or can't come.
	least, most int

	grant int
	// floor and loose tell what other grants would have been as good: floor alone,
	// or floor and floor+1 if loose. A part that a bound decides isn't loose.
	floor int
	loose bool

	bounded bool
}

// apportion divides n shards over the parts in proportion to their weights: each
// part is granted its exact share rounded down or up. Which shares are rounded up
// is chosen first so that the fewest shards move (those that have more than their
// rounded-down share keep one of them), then by largest remainder.
//
// Bounds are met by water-filling: parts whose share violates one are set to it
// and the rest is divided anew. Violations on the side that weighs more are
// settled first, since settling them can undo those of the other side but not
// the other way round (the same procedure lays out flexible boxes in CSS).
// The bounds must leave a solution: least sums to at most n, most to at least n.
func apportion(n int, parts []part) {
	for i := range parts {
		parts[i].bounded, parts[i].loose = false, false
	}
	for {
		rest, weight := n, 0
		for i := range parts {
			if parts[i].bounded {
				rest -= parts[i].grant
			} else {
				weight += parts[i].weight
			}
		}
		if !settleBounds(parts, rest, weight) {
			roundShares(parts, rest, weight)
			return
		}
	}
}

// settleBounds sets parts to the bounds that their shares of the rest violate, and
// says whether there were any.
func settleBounds(parts []part, rest, weight int) bool {
	below, above := 0, 0 // by how much shares violate bounds, times the weight
	for i := range parts {
		p := &parts[i]
		if p.bounded {
			continue
		}
		below += max(0, p.least*weight-rest*p.weight)
		above += max(0, rest*p.weight-p.most*weight)
	}
	for i := range parts {
		p := &parts[i]
		switch {
		case p.bounded:
		case below >= above && p.least*weight > rest*p.weight:
			p.grant, p.floor, p.bounded = p.least, p.least, true
		case above >= below && rest*p.weight > p.most*weight:
			p.grant, p.floor, p.bounded = p.most, p.most, true
		}
	}
	return below > 0 || above > 0
}

// roundShares grants the unbounded parts their shares of the rest.
func roundShares(parts []part, rest, weight int) {
	var loose []*part
	left := rest
	for i := range parts {
		p := &parts[i]
		if p.bounded {
			continue
		}
		p.floor = rest * p.weight / weight
		p.grant = p.floor
		p.loose = rest*p.weight%weight != 0
		left -= p.floor
		if p.loose {
			loose = append(loose, p)
		}
	}
	slices.SortStableFunc(loose, func(x, y *part) int {
		return cmp.Or(
			compareBools(y.have > y.floor, x.have > x.floor),
			cmp.Compare(rest*y.weight%weight, rest*x.weight%weight),
		)
	})
	for _, p := range loose[:left] {
		p.grant++
	}
}
