package replication

import (
	"errors"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// An admission webhook may refuse by any code, and these two are otherwise signs of a view that is out of date.
func TestARefusalBy404Or409IsQuotedAndTriedEverLessOften(t *testing.T) {
	web := appsv1.Resource("deployments")
	for code, refusal := range map[string]error{
		"409": apierrors.NewConflict(web, "web", errors.New("changes are frozen")),
		"404": apierrors.NewNotFound(web, "changes are frozen"),
	} {
		for what, begin := range map[string]func(t *testing.T) *bench{
			"create": func(t *testing.T) *bench {
				b := newBench(t, aSource())
				b.clusters["west"].refusesApply = refusal
				return b
			},
			"apply": func(t *testing.T) *bench {
				b := settled(t)
				b.clusters["west"].refusesApply = refusal
				b.edit("home", "kubectl", image("web:2"))
				return b
			},
			"delete": func(t *testing.T) *bench {
				b := settled(t)
				b.edit("home", "kubectl", annotated(AnnotationClusters, "east"))
				b.clusters["west"].refusesDelete = refusal
				return b
			},
		} {
			t.Run(what+" "+code, func(t *testing.T) {
				b := begin(t)
				for range 120 {
					b.clock.Step(5 * time.Second)
					b.mustReconcile()
				}
				if b.refused < 5 || b.refused > 15 {
					t.Errorf("it was tried %d times in 10 min, want ever less often", b.refused)
				}
				if !strings.Contains(b.message(), "changes are frozen") {
					t.Errorf("the condition says %q", b.message())
				}
				b.clusters["west"].refusesApply, b.clusters["west"].refusesDelete = nil, nil
				b.clock.Step(longestDelay)
				b.live()
				b.wantReason("", ReasonReplicated)
			})
		}
	}
}

func TestACopyIsBroughtUpToDateSoonAfterItsCredentialsAreRepaired(t *testing.T) {
	b := settled(t)
	b.edit("home", "kubectl", image("web:2"))
	b.clusters["west"].refusesApply = apierrors.NewUnauthorized("the token has expired")
	for range 120 {
		b.clock.Step(5 * time.Second)
		b.mustReconcile()
	}
	b.wantReason("", ReasonRefused)
	if !strings.Contains(b.message(), "the token has expired") {
		t.Errorf("the condition says %q", b.message())
	}
	b.clusters["west"].refusesApply = nil
	b.clock.Step(longestSilence)
	b.mustReconcile()
	if got := b.image("west"); got != "web:2" {
		t.Errorf("west has %s after %s", got, longestSilence)
	}
}
