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
}

// targetHealth is what is known about one target.
type targetHealth struct {
	Usable bool
	// Since when it is unusable.
	Since time.Time
}

func recordOf(source *appsv1.Deployment) record {
	_, known := source.Annotations[AnnotationCopies]
	return record{
		Finalizer: controllerutil.ContainsFinalizer(source, Finalizer),
		Known:     known,
		Copies:    splitNames(source.Annotations[AnnotationCopies]),
		GivenUp:   splitNames(source.Annotations[AnnotationGivenUp]),
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

// before returns the record that must be written before any copy may be made. It has the finalizer and all known
// targets, since copies can be made in no other. The duration is when to look again because a target's grace ends; 0:
// not needed.
func (r record) before(wish wish, targets, known []multicluster.ClusterName,
	health map[multicluster.ClusterName]targetHealth, now time.Time, grace time.Duration) (record, time.Duration) {
	next := record{Finalizer: true, Known: true, Copies: union(r.Copies, both(targets, known))}
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
	return r.Finalizer == other.Finalizer && r.Known == other.Known &&
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
	if r.Known {
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
