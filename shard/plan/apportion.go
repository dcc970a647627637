package plan

import (
	"cmp"
	"slices"
)

// part is one replica's weight, what it has, and what it is granted.
type part struct {
	weight int
	have   int
	// least is the smallest possible grant, since some shards can't leave.
	least int

	grant   int
	floor   int // the share rounded down
	bounded bool
}

// apportion divides n shards among the parts in proportion to their weights: each part is granted its exact share,
// rounded down or up. The shares to round up are first those of parts that have more than their rounded-down share,
// so that the fewest shards move, and then those with the largest remainder.
//
// Parts whose share is below their bound are granted the bound, and the rest is divided again. The bounds sum to at
// most n.
func apportion(n int, parts []part) {
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

// settleBounds grants the bound to each part whose share of the rest is below it, and reports whether there were any.
func settleBounds(parts []part, rest, weight int) (settled bool) {
	for i := range parts {
		if p := &parts[i]; !p.bounded && p.least*weight > rest*p.weight {
			p.grant, p.bounded, settled = p.least, true, true
		}
	}
	return settled
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
		left -= p.floor
		if rest*p.weight%weight != 0 {
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
