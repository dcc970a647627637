package replication

import (
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/tenure-dev/tenure/pkg/text"
)

// record is the state kept on a source, so that any process can go on where another stopped.
type record struct {
	Finalizer bool
	// Known reports whether the source has the list Copies. A user may have removed it.
	Known   bool
	Copies  []multicluster.ClusterName
	GivenUp []multicluster.ClusterName
	// Guessed: the list was lost, or didn't name a copy that was found. So Copies may name a cluster by a name under which
	// no copy was made there. It is so until no copy is left that isn't wanted.
	Guessed bool
}

// guess stands in the list of copies of a record that is Guessed. No cluster has such a name.
const guess multicluster.ClusterName = "?"

// targetHealth is what is known about one target.
type targetHealth struct {
	Usable bool
	// Since when it is unusable.
	Since time.Time
}

func recordOf(source *appsv1.Deployment) record {
	list, known := source.Annotations[AnnotationCopies]
	copies := splitNames(list)
	return record{
		Finalizer: controllerutil.ContainsFinalizer(source, Finalizer),
		Known:     known,
		Copies:    others(copies, guess),
		GivenUp:   splitNames(source.Annotations[AnnotationGivenUp]),
		Guessed:   slices.Contains(copies, guess),
	}
}

// renamed returns the record with the names under which clusters are known, without the source's own cluster: while
// that wasn't known to have another name, it may have got into the record by it.
func (r record) renamed(aliases map[multicluster.ClusterName]multicluster.ClusterName,
	home multicluster.ClusterName) record {
	r.Copies = others(rename(r.Copies, aliases), home)
	r.GivenUp = others(rename(r.GivenUp, aliases), home)
	return r
}

// spelled returns the record with copies under the names that its source uses for clusters with several names. If such
// a name is removed, the copy is then still recorded under the name at which it is wanted. Otherwise it would be
// recorded under the other name alone, at which it isn't wanted, and so be deleted.
func (r record) spelled(source *appsv1.Deployment,
	aliases map[multicluster.ClusterName]multicluster.ClusterName) record {
	used := splitNames(source.Annotations[AnnotationClusters])
	as := map[multicluster.ClusterName]multicluster.ClusterName{}
	for _, name := range used {
		if one, other := aliases[name]; other && !slices.Contains(used, one) {
			as[one] = name
		}
	}
	r.Copies = rename(r.Copies, as)
	return r
}

// before returns the record that must be written before any copy may be made. It has the finalizer and all known
// targets, since copies can be made in no other. The duration is when to look again because a target's grace ends; 0:
// not needed.
func (r record) before(wish wish, targets, known []multicluster.ClusterName,
	health map[multicluster.ClusterName]targetHealth, now time.Time, grace time.Duration) (record, time.Duration) {
	next := record{Finalizer: true, Known: true, Copies: union(r.Copies, both(targets, known)), Guessed: r.Guessed}
	var after time.Duration
	if wish.Divide {
		for _, name := range targets {
			h := health[name]
			if h.Usable {
				continue
			}
			left := h.Since.Add(grace).Sub(now)
			switch {
			case left <= 0, slices.Contains(r.GivenUp, name):
				// Given up before, perhaps by another process: its grace doesn't start again.
				next.GivenUp = append(next.GivenUp, name)
			default:
				after = sooner(after, left)
			}
		}
	}
	return next, after
}

// after returns the record once it is known which clusters have no copy any more.
func (r record) after(gone []multicluster.ClusterName, wanted bool) record {
	next := r
	next.Copies = slices.DeleteFunc(slices.Clone(r.Copies), func(name multicluster.ClusterName) bool {
		return slices.Contains(gone, name)
	})
	if !wanted && len(next.Copies) == 0 {
		return record{}
	}
	return next
}

func (r record) equal(other record) bool {
	return r.Finalizer == other.Finalizer && r.Known == other.Known && r.Guessed == other.Guessed &&
		slices.Equal(r.Copies, other.Copies) && slices.Equal(r.GivenUp, other.GivenUp)
}

// put writes the record on a source in memory.
func (r record) put(source *appsv1.Deployment) {
	if r.Finalizer {
		controllerutil.AddFinalizer(source, Finalizer)
	} else {
		controllerutil.RemoveFinalizer(source, Finalizer)
	}
	if source.Annotations == nil {
		source.Annotations = map[string]string{}
	}
	delete(source.Annotations, AnnotationCopies)
	switch {
	case r.Known && r.Guessed:
		source.Annotations[AnnotationCopies] = text.Join(union(r.Copies, []multicluster.ClusterName{guess}), ",")
	case r.Known:
		source.Annotations[AnnotationCopies] = text.Join(r.Copies, ",")
	}
	delete(source.Annotations, AnnotationGivenUp)
	if len(r.GivenUp) > 0 {
		source.Annotations[AnnotationGivenUp] = text.Join(r.GivenUp, ",")
	}
}

func union(a, b []multicluster.ClusterName) []multicluster.ClusterName {
	return text.Sorted(slices.Concat(a, b))
}

func both(a, b []multicluster.ClusterName) []multicluster.ClusterName {
	return slices.DeleteFunc(slices.Clone(a), func(name multicluster.ClusterName) bool {
		return !slices.Contains(b, name)
	})
}

func splitNames(list string) []multicluster.ClusterName {
	var names []multicluster.ClusterName
	for part := range strings.SplitSeq(list, ",") {
		if name := strings.TrimSpace(part); name != "" {
			names = append(names, multicluster.ClusterName(name))
		}
	}
	return text.Sorted(names)
}

// sooner returns the earlier of two delays. 0 means never.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || (b != 0 && b < a) {
		return b
	}
	return a
}
