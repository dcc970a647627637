package replication

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/tenure-dev/tenure/test/expect"
)

type names = []multicluster.ClusterName

func TestParseWish(t *testing.T) {
	all := func(pairs ...string) map[string]string { // for all clusters
		annotations := map[string]string{AnnotationClusters: "*"}
		for i := 0; i < len(pairs); i += 2 {
			annotations[pairs[i]] = pairs[i+1]
		}
		return annotations
	}
	overrides := func(text string) map[string]string { return all(AnnotationOverrides, text) }
	for name, c := range map[string]struct {
		annotations map[string]string
		want        wish
		bad         []string // names of the annotations that are refused
	}{
		"named clusters are sorted and counted once": {map[string]string{AnnotationClusters: "west, east,west"},
			wish{Clusters: names{"east", "west"}}, nil},
		"a star is all clusters":  {all(), wish{All: true}, nil},
		"no clusters are refused": {nil, wish{}, []string{AnnotationClusters}},
		"an empty name is refused": {map[string]string{AnnotationClusters: "west,,east"}, wish{},
			[]string{AnnotationClusters}},
		"one more than may be is refused": {map[string]string{AnnotationClusters: invented(maxListed+1, 8)}, wish{},
			[]string{AnnotationClusters}},
		"the source's own is refused": {map[string]string{AnnotationClusters: "west,home"}, wish{},
			[]string{AnnotationClusters}},
		"divide takes a total and weights": {
			all(AnnotationReplicas, "divide", AnnotationTotal, "10", AnnotationWeights, "west=3, east=1"),
			wish{All: true, Divide: true, Total: 10, Weights: weigh("west", 3, "east", 1)}, nil},
		"divide without a total is refused": {all(AnnotationReplicas, "divide"), wish{}, []string{AnnotationTotal}},
		"a negative total is refused": {all(AnnotationReplicas, "divide", AnnotationTotal, "-1"), wish{},
			[]string{AnnotationTotal}},
		"total and weights without divide are refused": {all(AnnotationTotal, "3", AnnotationWeights, "west=1"), wish{},
			[]string{AnnotationTotal, AnnotationWeights}},
		"another mode is refused": {all(AnnotationReplicas, "share"), wish{}, []string{AnnotationReplicas}},
		"weights that aren't numbers are refused": {
			all(AnnotationReplicas, "divide", AnnotationTotal, "1", AnnotationWeights, "west=x"), wish{},
			[]string{AnnotationWeights}},
		"overrides are read": {overrides(`{"west":{"replicas":5,"images":{"web":"web:2"}}}`),
			wish{All: true, Overrides: map[multicluster.ClusterName]override{
				"west": {Replicas: new(int32(5)), Images: map[string]string{"web": "web:2"}}}}, nil},
		"overrides that aren't JSON are refused":    {overrides(`{"west"`), wish{}, []string{AnnotationOverrides}},
		"unknown fields in overrides are refused":   {overrides(`{"west":{"cpu":1}}`), wish{}, []string{AnnotationOverrides}},
		"something behind the overrides is refused": {overrides(`{} {}`), wish{}, []string{AnnotationOverrides}},
		"an unknown container is refused": {overrides(`{"west":{"images":{"db":"x"}}}`), wish{},
			[]string{AnnotationOverrides}},
		"replicas in overrides don't go with divide": {all(AnnotationReplicas, "divide", AnnotationTotal, "1",
			AnnotationOverrides, `{"west":{"replicas":1}}`), wish{}, []string{AnnotationOverrides}},
		"all that is wrong is told": {map[string]string{AnnotationReplicas: "x", AnnotationOverrides: "["}, wish{},
			[]string{AnnotationClusters, AnnotationReplicas, AnnotationOverrides}},
	} {
		t.Run(name, func(t *testing.T) {
			source := aSource()
			source.Annotations = c.annotations
			got, err := parseWish(source, home)
			var bad []string
			if joined, ok := err.(interface{ Unwrap() []error }); ok {
				for _, e := range joined.Unwrap() {
					var annotation *badAnnotation
					if !errors.As(e, &annotation) {
						t.Fatalf("%v is no badAnnotation", e)
					}
					if annotation.Value != c.annotations[annotation.Name] {
						t.Errorf("%s: value %q", annotation.Name, annotation.Value)
					}
					bad = append(bad, annotation.Name)
				}
			}
			if diff := cmp.Diff(c.bad, bad); diff != "" {
				t.Fatalf("refused (-want +got):\n%s\n%v", diff, err)
			}
			if diff := cmp.Diff(c.want, got, cmpopts.EquateEmpty()); len(c.bad) == 0 && diff != "" {
				t.Errorf("wish (-want +got):\n%s", diff)
			}
		})
	}
}

// A mistyped name would change nothing, silently.
func TestWhatIsSaidOfAClusterThatGetsNoCopyIsRefused(t *testing.T) {
	const overrides = `{"wset":{"images":{"web":"web:2"}}}`
	for name, c := range map[string]struct {
		source *appsv1.Deployment
		bad    string // the annotation that is refused, "" for none
	}{
		"an override": {aSource(annotated(AnnotationOverrides, overrides)), AnnotationOverrides},
		"a weight":    {divided(annotated(AnnotationWeights, "west=1,wset=3")), AnnotationWeights},
		"an override, with all clusters": {aSource(annotated(AnnotationClusters, "*"),
			annotated(AnnotationOverrides, overrides)), ""},
		"a weight by another name": {divided(annotated(AnnotationWeights, "also=3")), ""},
		"an override of a target that is named by another name": {aSource(annotated(AnnotationClusters, "also"),
			annotated(AnnotationOverrides, `{"west":{"replicas":5}}`)), ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, c.source)
			b.also("also", true)
			if c.bad != "" {
				if result, err := b.reconcile(); err != nil || result.RequeueAfter != connectGrace || len(b.written) > 0 {
					t.Errorf("while clusters connect, and wset may be another name: %+v, %v, written %v", result, err, b.written)
				}
				b.clock.Step(connectGrace)
			}
			b.live()
			condition := Condition(b.get("home"))
			if c.bad == "" {
				if condition.Reason != ReasonReplicated {
					t.Errorf("condition %s: %s", condition.Reason, condition.Message)
				}
				return
			}
			b.wantWritten("status home")
			for _, word := range []string{"annotation " + c.bad, c.source.Annotations[c.bad], "wset isn't one of " +
				AnnotationClusters + ": name it there, or leave it out here"} {
				if message := condition.Message; condition.Reason != ReasonInvalidAnnotation ||
					!strings.Contains(strings.ReplaceAll(message, `\"`, `"`), word) {
					t.Errorf("condition %s: %s, want it to say %q", condition.Reason, message, word)
				}
			}
		})
	}
}

func TestTheSourcesOwnClusterIsNoTarget(t *testing.T) {
	got := wish{All: true}.targets(names{"west", "home", "east"}, home)
	expect.Equal(t, "targets", names{"east", "west"}, got)
}

func FuzzParseWishNeverPanics(f *testing.F) {
	f.Add("west,east", "divide", "3", "west=1", `{"west":{"replicas":1}}`)
	f.Add("*", "", "", "", `{}`)
	f.Fuzz(func(t *testing.T, clusters, mode, total, weights, overrides string) {
		source := aSource()
		source.Annotations = map[string]string{AnnotationClusters: clusters, AnnotationReplicas: mode,
			AnnotationTotal: total, AnnotationWeights: weights, AnnotationOverrides: overrides}
		wish, err := parseWish(source, home)
		if err == nil && !wish.All && len(wish.Clusters) == 0 {
			t.Errorf("no clusters and no complaint: %q", clusters)
		}
	})
}

func TestDivide(t *testing.T) {
	for name, c := range map[string]struct {
		total   int32
		weights map[multicluster.ClusterName]int64
		want    map[multicluster.ClusterName]int32
	}{
		"equal weights":                  {9, weigh("a", 1, "b", 1, "c", 1), share("a", 3, "b", 3, "c", 3)},
		"what is left goes by name":      {8, weigh("a", 1, "b", 1, "c", 1), share("a", 3, "b", 3, "c", 2)},
		"the largest remainder is first": {10, weigh("a", 1, "b", 3), share("a", 3, "b", 7)},
		"a weight of 0 gets none":        {5, weigh("a", 0, "b", 1), share("a", 0, "b", 5)},
		"all weights 0 count alike":      {4, weigh("a", 0, "b", 0), share("a", 2, "b", 2)},
		"nothing to divide":              {0, weigh("a", 1, "b", 2), share("a", 0, "b", 0)},
		"nobody to divide among":         {5, weigh(), share()},
	} {
		t.Run(name, func(t *testing.T) {
			expect.Equal(t, "shares", c.want, divide(c.total, c.weights))
		})
	}
}

func weigh(pairs ...any) map[multicluster.ClusterName]int64 {
	m := map[multicluster.ClusterName]int64{}
	for i := 0; i < len(pairs); i += 2 {
		m[multicluster.ClusterName(pairs[i].(string))] = int64(pairs[i+1].(int))
	}
	return m
}

func share(pairs ...any) map[multicluster.ClusterName]int32 {
	m := map[multicluster.ClusterName]int32{}
	for name, n := range weigh(pairs...) {
		m[name] = int32(n)
	}
	return m
}

func TestDivideGivesOutTheTotalAndIsWithinOneOfTheExactShare(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for range 5000 {
		weights, sum := map[multicluster.ClusterName]int64{}, int64(0)
		for i := range 1 + random.IntN(12) {
			w := random.Int64N(maxWeight + 1)
			weights[multicluster.ClusterName(rune('a'+i))] = w
			sum += w
		}
		total := random.Int32()
		shares, given := divide(total, weights), int64(0)
		for name, n := range shares {
			given += int64(n)
			exact := float64(total) * float64(weights[name]) / float64(sum)
			if sum > 0 && (float64(n) < exact-1 || float64(n) > exact+1) {
				t.Fatalf("%v: %s gets %d, its share is %f of %d", weights, name, n, exact, total)
			}
		}
		if given != int64(total) || len(shares) != len(weights) {
			t.Fatalf("%v: %d of %d given to %d", weights, given, total, len(shares))
		}
		if diff := cmp.Diff(shares, divide(total, weights)); diff != "" {
			t.Fatalf("another result for the same question:\n%s", diff)
		}
	}
}

func TestSharesMoveAwayFromATargetThatIsGivenUp(t *testing.T) {
	targets, heavy, zero := names{"a", "b", "c"}, weigh("c", 2), weigh("a", 0, "b", 0, "c", 0)
	for name, c := range map[string]struct {
		weights map[multicluster.ClusterName]int64
		givenUp names
		want    map[multicluster.ClusterName]int32
	}{
		"none is":                       {heavy, nil, share("a", 2, "b", 2, "c", 5)},
		"one is":                        {heavy, names{"c"}, share("a", 5, "b", 4, "c", 0)},
		"two are":                       {heavy, names{"b", "c"}, share("a", 9, "b", 0, "c", 0)},
		"all are":                       {heavy, targets, share("a", 2, "b", 2, "c", 5)},
		"a former":                      {heavy, names{"z"}, share("a", 2, "b", 2, "c", 5)},
		"one is, and all weights are 0": {zero, names{"c"}, share("a", 5, "b", 4, "c", 0)},
	} {
		t.Run(name, func(t *testing.T) {
			got := map[multicluster.ClusterName]int32{}
			for target, n := range (wish{Divide: true, Total: 9, Weights: c.weights}).shares(targets, c.givenUp) {
				got[target] = *n
			}
			expect.Equal(t, "shares", c.want, got)
		})
	}
}
