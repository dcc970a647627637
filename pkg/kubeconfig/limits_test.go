package kubeconfig

import (
	"math"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestAnnotationsReplaceTheFlags(t *testing.T) {
	flags := Limits{QPS: 20, Burst: 40, Writes: 8}
	for name, c := range map[string]struct {
		annotations map[string]string
		want        Limits
		complaints  []string
	}{
		"none": {nil, flags, nil},
		"all": {map[string]string{QPSAnnotation: "0.5", BurstAnnotation: "3", WritesAnnotation: " 2 "},
			Limits{0.5, 3, 2}, nil},
		"one":      {map[string]string{WritesAnnotation: "2"}, Limits{20, 40, 2}, nil},
		"no limit": {map[string]string{QPSAnnotation: "0", WritesAnnotation: "0"}, Limits{0, 40, 0}, nil},
		"a word": {map[string]string{QPSAnnotation: "fast", WritesAnnotation: "2"}, flags,
			[]string{`annotation tenure.dev/cluster-qps: "fast" must be 0 (no limit) or a number`}},
		"nothing": {map[string]string{BurstAnnotation: ""}, flags, []string{`cluster-burst: ""`}},
		"negative": {map[string]string{QPSAnnotation: "-1", BurstAnnotation: "-1"}, flags,
			[]string{`"-1" must be 0 (no limit) or a number`, `"-1" must be 0 (no limit) or a whole number`}},
		"next to nothing": {map[string]string{QPSAnnotation: "1e-9"}, flags, []string{`"1e-9" must be 0`}},
		"not a number":    {map[string]string{QPSAnnotation: "NaN"}, flags, []string{`"NaN"`}},
		"endless": {map[string]string{QPSAnnotation: "Inf", WritesAnnotation: "1e3"}, flags,
			[]string{`"Inf"`, `"1e3"`}},
		"huge": {map[string]string{BurstAnnotation: "99999999999999999999"}, flags, []string{"1000000"}},
		"long and colored": {map[string]string{QPSAnnotation: "\x1b[2J" + strings.Repeat("9", 10000)}, flags,
			[]string{`[2J999`}},
	} {
		t.Run(name, func(t *testing.T) {
			secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "tenure-system", Name: "west",
				Annotations: c.annotations}}
			got, err := LimitsOf(secret, flags)
			if got != c.want || (err == nil) != (c.complaints == nil) {
				t.Fatalf("%v, %v; want %v", got, err, c.want)
			}
			for _, want := range append(c.complaints, "Secret tenure-system/west",
				"until that is corrected or removed, the values of the replicas' flags hold") {
				if err != nil && !strings.Contains(err.Error(), want) {
					t.Errorf("%q isn't in %v", want, err)
				}
			}
			if err != nil && len(err.Error()) > 600 {
				t.Errorf("%d bytes: %v", len(err.Error()), err)
			}
		})
	}
}

func TestLimitsThatMakeNoSenseAreRefused(t *testing.T) {
	for _, l := range []Limits{{QPS: -1}, {QPS: 0.01}, {QPS: math.NaN()}, {QPS: math.Inf(1)}, {Burst: -1}, {Writes: -1},
		{Writes: math.MaxInt}} {
		if err := l.Validate(); err == nil || strings.Contains(err.Error(), "--") { // a library has no flags
			t.Errorf("%v: %v", l, err)
		}
	}
	for l, want := range map[Limits]string{
		{}: "no limit", {Burst: 5}: "no limit", {QPS: 2.5}: "2.5 requests/s, 3 at once",
		{QPS: 1, Burst: 9, Writes: 4}: "1 requests/s, 9 at once, 4 writes at a time",
	} {
		if err := l.Validate(); err != nil || l.String() != want {
			t.Errorf("%v, %q; want %q", err, l, want)
		}
	}
}
