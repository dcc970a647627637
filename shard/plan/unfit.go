package plan

import (
	"cmp"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/shard/keyspace"
)

// Fitness says what a replica can do for a cluster.
type Fitness uint8

const (
	// Fit: it can be given shards of the cluster.
	Fit Fitness = iota
	// Keeps: it keeps the shards of the cluster that it has, and gets no others.
	Keeps
	// Unfit: it can't serve the cluster. It gets none of its shards, and what it has moves to a replica that is fit.
	Unfit
)

// UnfitFor states which clusters a replica isn't fit for, as one canonical text: sorted names separated by commas. A
// plus sign follows the names of clusters whose shards it keeps ("east,west+"). With a leading exclamation mark, the
// replica is unfit for all clusters except the listed ones ("!east,west+"). "" means fit for all. In a name these
// characters and the percent sign are percent-encoded: multicluster-runtime's file provider gives names with a plus.
type UnfitFor string

var (
	encoding = strings.NewReplacer("%", "%25", ",", "%2C", "+", "%2B", "!", "%21")
	decoding = strings.NewReplacer("%25", "%", "%2C", ",", "%2B", "+", "%21", "!")
)

// MaxUnfitFor is the maximum length of the text in bytes: a thousand long names. An API server takes four times as much
// in annotations.
const MaxUnfitFor = 64 << 10

// longUnfitFor is the length above which the text lists the clusters that the replica is fit for, if that's shorter.
const longUnfitFor = 1 << 10

// NewUnfitFor states what a replica is fit for, among all clusters that it has met or found in records. It lists the
// clusters that the replica isn't fit for or, if that list would be long, the ones that it is fit for if that is
// shorter. If the text is still too long, only the first names remain: the replica then counts as fit for the other
// clusters, and may have shards of them that it doesn't serve.
func NewUnfitFor(clusters map[keyspace.ClusterName]Fitness) UnfitFor {
	var not, but []string
	for name, fitness := range clusters {
		if name == "" {
			continue // the text couldn't be read back
		}
		text := encoding.Replace(string(name))
		switch fitness {
		case Unfit:
			not = append(not, text)
		case Keeps:
			not, but = append(not, text+"+"), append(but, text+"+")
		default:
			but = append(but, text)
		}
	}
	slices.Sort(not)
	slices.Sort(but)
	list, rest := strings.Join(not, ","), "!"+strings.Join(but, ",")
	if len(list) > longUnfitFor && len(rest) < len(list) && len(rest) <= MaxUnfitFor {
		return UnfitFor(rest)
	}
	return UnfitFor(cut(list))
}

// cut drops names from the end until the list has at most MaxUnfitFor bytes.
func cut(list string) string {
	if len(list) <= MaxUnfitFor {
		return list
	}
	list = list[:MaxUnfitFor+1]
	return list[:max(strings.LastIndexByte(list, ','), 0)]
}

// split returns the names in the text. If others is true, they are exceptions: the replica is unfit for all other
// clusters.
func (u UnfitFor) split() (names []string, others bool) {
	text, others := strings.CutPrefix(string(u), "!")
	if text == "" {
		return nil, others
	}
	return strings.Split(text, ","), others
}

// Of returns what the text says about a cluster.
func (u UnfitFor) Of(cluster keyspace.ClusterName) Fitness {
	if u == "" {
		return Fit
	}
	names, others := strings.CutPrefix(string(u), "!")
	text := encoding.Replace(string(cluster))
	switch {
	case lists(names, text+"+"):
		return Keeps
	case lists(names, text) != others:
		return Unfit
	}
	return Fit
}

// Changes returns the clusters about which two texts may differ, sorted. all is true if they may differ about any
// cluster.
func (u UnfitFor) Changes(to UnfitFor) (clusters []keyspace.ClusterName, all bool) {
	before, others := u.split()
	after, othersAfter := to.split()
	if others != othersAfter {
		return nil, true
	}
	for _, name := range slices.Concat(before, after) {
		cluster := keyspace.ClusterName(decoding.Replace(strings.TrimSuffix(name, "+")))
		if u.Of(cluster) != to.Of(cluster) {
			clusters = append(clusters, cluster)
		}
	}
	slices.Sort(clusters)
	return slices.Compact(clusters), false
}

// lists reports whether a sorted list has a name. It uses binary search, since a list may be long and is searched
// for each shard.
func lists(list, name string) bool {
	for list != "" {
		first := strings.LastIndexByte(list[:len(list)/2], ',') + 1
		middle, _, _ := strings.Cut(list[first:], ",")
		switch {
		case middle == name:
			return true
		case middle < name:
			list = list[min(first+len(middle)+1, len(list)):]
		default:
			list = list[:max(first-1, 0)]
		}
	}
	return false
}

// exclusions are the candidates that aren't fit for a cluster, ordered by index.
type exclusions []exclusion

type exclusion struct {
	replica int32
	fitness Fitness
}

func (e exclusions) of(replica int32) Fitness {
	if i, found := slices.BinarySearchFunc(e, replica,
		func(x exclusion, r int32) int { return cmp.Compare(x.replica, r) }); found {
		return e[i].fitness
	}
	return Fit
}

// statements holds the statements of all candidates that aren't fit for all clusters.
type statements struct {
	listed map[keyspace.ClusterName]exclusions // of candidates that list what they aren't fit for
	others []others                            // candidates that list what they are fit for
}

type others struct {
	replica int32
	said    map[keyspace.ClusterName]Fitness
}

// readStatements parses the candidates' statements. It returns nil if all are fit for all clusters.
func (b *board) readStatements() *statements {
	var s *statements
	for i := range b.replicas {
		r := &b.replicas[i]
		if !r.candidate || r.Unfit == "" {
			continue
		}
		if s == nil {
			s = &statements{listed: map[keyspace.ClusterName]exclusions{}}
		}
		names, rest := r.Unfit.split()
		said := map[keyspace.ClusterName]Fitness{}
		for _, name := range names {
			name, keeps := strings.CutSuffix(name, "+")
			cluster := keyspace.ClusterName(decoding.Replace(name))
			switch {
			case keeps:
				said[cluster] = Keeps
			case rest:
				said[cluster] = Fit
			default:
				said[cluster] = Unfit
			}
		}
		if rest {
			s.others = append(s.others, others{int32(i), said})
			continue
		}
		for cluster, fitness := range said {
			s.listed[cluster] = append(s.listed[cluster], exclusion{int32(i), fitness})
		}
	}
	return s
}

// of returns the candidates that aren't fit for a cluster.
func (s *statements) of(cluster keyspace.ClusterName) exclusions {
	all := s.listed[cluster]
	if len(s.others) == 0 {
		return all
	}
	all = slices.Clip(all)
	for _, o := range s.others {
		fitness, said := o.said[cluster]
		if !said {
			fitness = Unfit
		}
		if fitness != Fit {
			all = append(all, exclusion{o.replica, fitness})
		}
	}
	slices.SortFunc(all, func(x, y exclusion) int { return cmp.Compare(x.replica, y.replica) })
	return all
}

// group is a set of clusters that the same candidates are fit for. If all candidates are fit for all clusters there is
// one.
type group struct {
	excluded exclusions
	clusters [][]boardShard // the shards of each cluster; a single group has all shards in one slice
}

func (g *group) takes(replica int32) bool { return g.excluded.of(replica) == Fit }

// groups divides the clusters into groups. Those that the fewest candidates can serve come first, so that the later
// ones can level the totals.
func (b *board) groups() []*group {
	if b.statements == nil {
		return []*group{{clusters: [][]boardShard{b.shards}}}
	}
	byKey := map[string]*group{}
	var all []*group
	var key []byte
	for first := 0; first < len(b.shards); {
		last := first
		for last < len(b.shards) && b.shards[last].cluster == b.shards[first].cluster {
			last++
		}
		excluded := b.excluded[b.shards[first].cluster]
		key = key[:0]
		for _, e := range excluded {
			key = append(key, byte(e.replica>>24), byte(e.replica>>16), byte(e.replica>>8), byte(e.replica))
		}
		g := byKey[string(key)]
		if g == nil {
			g = &group{excluded: excluded}
			byKey[string(key)] = g
			all = append(all, g)
		}
		g.clusters = append(g.clusters, b.shards[first:last])
		first = last
	}
	slices.SortStableFunc(all, func(x, y *group) int { return cmp.Compare(len(y.excluded), len(x.excluded)) })
	return all
}
