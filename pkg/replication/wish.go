package replication

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/tenure-dev/tenure/pkg/text"
)

const (
	// maxListed bounds the clusters that one annotation names. * stands for any number.
	maxListed = 500
	// maxComplaints bounds the errors reported for one source.
	maxComplaints = 10
)

// maxWeight keeps the arithmetic of shares within 64 bits.
const maxWeight = 1_000_000

// wish is what the annotations of a source ask for.
type wish struct {
	// All asks for every cluster. Otherwise Clusters names them, sorted.
	All      bool
	Clusters []multicluster.ClusterName
	// Divide splits Total by Weights. Otherwise every target gets the replicas of the source.
	Divide    bool
	Total     int32
	Weights   map[multicluster.ClusterName]int64
	Overrides map[multicluster.ClusterName]override
}

// override is what differs in one cluster.
type override struct {
	// Replicas in that cluster. It can't be combined with Divide: use a weight.
	Replicas *int32 `json:"replicas,omitempty"`
	// Images by the name of the container or init container.
	Images map[string]string `json:"images,omitempty"`
}

// badAnnotation is an invalid annotation.
type badAnnotation struct {
	Name, Value string
	// Why is one line, of at most maxText bytes.
	Why string
}

func (e *badAnnotation) Error() string {
	return fmt.Sprintf("annotation %s: %q: %s", e.Name, text.Line(e.Value, 200), e.Why)
}

// parseWish parses the annotations of a source. The error joins a badAnnotation for each problem, at most
// maxComplaints, since annotations may contain thousands of invalid names.
func parseWish(source *appsv1.Deployment, home multicluster.ClusterName) (wish, error) {
	p := &parser{annotations: source.Annotations}
	wish := wish{}
	p.clusters(&wish, home)
	p.mode(&wish)
	p.weights(&wish)
	p.overrides(&wish, containersOf(source))
	return wish, errors.Join(p.bad...)
}

// targets returns the clusters that should have a copy, sorted. * stands for all keepers. The source's own cluster is
// never one.
func (w wish) targets(keepers []multicluster.ClusterName, home multicluster.ClusterName) []multicluster.ClusterName {
	if w.All {
		return others(keepers, home)
	}
	return others(w.Clusters, home)
}

// others returns all but one of the names: sorted, with each name once.
func others(names []multicluster.ClusterName, but multicluster.ClusterName) []multicluster.ClusterName {
	names = slices.DeleteFunc(slices.Clone(names), func(name multicluster.ClusterName) bool { return name == but })
	return text.Sorted(names)
}

// renamed returns the wish with the names under which clusters are known. What is said of a cluster by that name takes
// precedence over what is said of it by others, and among these the first.
func (w wish) renamed(aliases map[multicluster.ClusterName]multicluster.ClusterName) wish {
	w.Clusters = rename(w.Clusters, aliases)
	w.Weights, w.Overrides = renameKeys(w.Weights, aliases), renameKeys(w.Overrides, aliases)
	return w
}

// astray returns an error for each cluster, at most maxComplaints, that weights or overrides name although it gets no
// copy: a mistyped name would change nothing, silently. * takes them for clusters that come later.
func (w wish) astray(source *appsv1.Deployment, aliases map[multicluster.ClusterName]multicluster.ClusterName) error {
	if w.All {
		return nil
	}
	p, targets := &parser{annotations: source.Annotations}, rename(w.Clusters, aliases)
	check := func(annotation string, named []multicluster.ClusterName) {
		for _, name := range named {
			if !slices.Contains(targets, cmp.Or(aliases[name], name)) {
				p.refuse(annotation, "%s isn't one of %s: name it there, or leave it out here", name, AnnotationClusters)
			}
		}
	}
	check(AnnotationWeights, sortedKeys(w.Weights))
	check(AnnotationOverrides, sortedKeys(w.Overrides))
	return errors.Join(p.bad...)
}

// rename replaces aliases by the names that they stand for. The result is sorted, with each name once.
func rename(names []multicluster.ClusterName,
	aliases map[multicluster.ClusterName]multicluster.ClusterName) []multicluster.ClusterName {
	names = slices.Clone(names)
	for i, name := range names {
		names[i] = cmp.Or(aliases[name], name)
	}
	return text.Sorted(names)
}

func renameKeys[V any](of map[multicluster.ClusterName]V,
	aliases map[multicluster.ClusterName]multicluster.ClusterName) map[multicluster.ClusterName]V {
	result := maps.Clone(of)
	for _, name := range sortedKeys(of) {
		one, other := aliases[name]
		if !other {
			continue
		}
		delete(result, name)
		if _, said := result[one]; !said {
			result[one] = of[name]
		}
	}
	return result
}

// weighed returns the clusters among which the total is divided. These are the targets, and, with All, also the
// clusters with a copy that aren't targets now. Such a cluster counts as away: its share moves when the grace is
// over.
func (w wish) weighed(targets, copies []multicluster.ClusterName,
	home multicluster.ClusterName) []multicluster.ClusterName {
	if !w.All || !w.Divide {
		return targets
	}
	return union(targets, others(copies, home))
}

type parser struct {
	annotations map[string]string
	bad         []error
}

func (p *parser) refuse(name, format string, args ...any) {
	if len(p.bad) >= maxComplaints {
		return
	}
	why := text.Line(fmt.Sprintf(format, args...), maxText)
	p.bad = append(p.bad, &badAnnotation{Name: name, Value: p.annotations[name], Why: why})
}

// tooManyNames refuses an annotation that names too many clusters.
func (p *parser) tooManyNames(name string, n int) bool {
	if n > maxListed {
		p.refuse(name, "names %d clusters, more than %d: * stands for all that there are", n, maxListed)
	}
	return n > maxListed
}

func (p *parser) clusters(wish *wish, home multicluster.ClusterName) {
	value := strings.TrimSpace(p.annotations[AnnotationClusters])
	if value == "" {
		p.refuse(AnnotationClusters, "name the clusters, or * for all")
		return
	}
	if value == "*" {
		wish.All = true
		return
	}
	if p.tooManyNames(AnnotationClusters, strings.Count(value, ",")+1) {
		return
	}
	for part := range strings.SplitSeq(value, ",") {
		name := strings.TrimSpace(part)
		switch {
		case !isClusterName(name):
			p.refuse(AnnotationClusters, "%q isn't the name of a cluster", shorten(name))
		case multicluster.ClusterName(name) == home:
			p.refuse(AnnotationClusters, "%s is the cluster of the source, which can't have a copy too", name)
		default:
			wish.Clusters = append(wish.Clusters, multicluster.ClusterName(name))
		}
	}
	wish.Clusters = text.Sorted(wish.Clusters)
}

func (p *parser) mode(wish *wish) {
	switch mode := p.annotations[AnnotationReplicas]; mode {
	case "", "duplicate":
		for _, name := range []string{AnnotationTotal, AnnotationWeights} {
			if _, found := p.annotations[name]; found {
				p.refuse(name, "needs %s: divide", AnnotationReplicas)
			}
		}
	case "divide":
		wish.Divide = true
		total, err := strconv.ParseInt(p.annotations[AnnotationTotal], 10, 32)
		if err != nil || total < 0 {
			p.refuse(AnnotationTotal, "divide needs the number of replicas of all clusters together")
			return
		}
		wish.Total = int32(total)
	default:
		p.refuse(AnnotationReplicas, "must be duplicate or divide")
	}
}

func (p *parser) weights(wish *wish) {
	list := p.annotations[AnnotationWeights]
	if !wish.Divide || strings.TrimSpace(list) == "" || p.tooManyNames(AnnotationWeights, strings.Count(list, ",")+1) {
		return
	}
	wish.Weights = map[multicluster.ClusterName]int64{}
	for part := range strings.SplitSeq(list, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		weight, err := strconv.ParseInt(value, 10, 64)
		if !isClusterName(name) || err != nil || weight < 0 || weight > maxWeight {
			p.refuse(AnnotationWeights, "%q isn't CLUSTER=WEIGHT with a weight from 0 to %d",
				shorten(strings.TrimSpace(part)), maxWeight)
			continue
		}
		if _, twice := wish.Weights[multicluster.ClusterName(name)]; twice {
			p.refuse(AnnotationWeights, "%s is named twice", name)
		}
		wish.Weights[multicluster.ClusterName(name)] = weight
	}
}

// overrides parses the annotation AnnotationOverrides into wish.Overrides, and adds what is wrong with it to p.bad.
// It needs wish.Divide, so mode has to come first. Images may only be overridden of the containers named.
func (p *parser) overrides(wish *wish, containers []string) {
	data, found := p.annotations[AnnotationOverrides]
	if !found {
		return
	}
	decoder := json.NewDecoder(strings.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&wish.Overrides); err != nil {
		p.refuse(AnnotationOverrides, "isn't JSON such as {\"west\":{\"replicas\":5,\"images\":{\"container\":\"image\"}}}: "+
			"%v", err)
		return
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		p.refuse(AnnotationOverrides, "something follows the JSON object")
	}
	if p.tooManyNames(AnnotationOverrides, len(wish.Overrides)) {
		return
	}
	for _, name := range sortedKeys(wish.Overrides) {
		p.override(wish.Divide, name, wish.Overrides[name], containers)
	}
}

func (p *parser) override(divide bool, name multicluster.ClusterName, o override, containers []string) {
	if !isClusterName(string(name)) {
		p.refuse(AnnotationOverrides, "%q isn't the name of a cluster", shorten(string(name)))
		return
	}
	if o.Replicas != nil && *o.Replicas < 0 {
		p.refuse(AnnotationOverrides, "%s: replicas must not be negative", name)
	}
	if o.Replicas != nil && divide {
		p.refuse(AnnotationOverrides, "%s: replicas are divided: use %s", name, AnnotationWeights)
	}
	for _, container := range sortedKeys(o.Images) {
		if !slices.Contains(containers, container) {
			p.refuse(AnnotationOverrides, "%s: there is no container %q", name, shorten(container))
		}
		if strings.TrimSpace(o.Images[container]) == "" {
			p.refuse(AnnotationOverrides, "%s: the image of container %q is empty", name, shorten(container))
		}
	}
}

// shorten shortens a part of an annotation, so that there is room for the message about it.
func shorten(part string) string { return text.Line(part, 100) }

func isClusterName(name string) bool { return len(validation.IsDNS1123Subdomain(name)) == 0 }

func containersOf(source *appsv1.Deployment) []string {
	pod := source.Spec.Template.Spec
	var names []string
	for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
		names = append(names, c.Name)
	}
	return names
}
