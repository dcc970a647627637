package replication

import (
	"cmp"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/tenure-dev/tenure/test/must"
)

// tenMinutes reconciles every five seconds.
func (b *bench) tenMinutes() {
	b.Helper()
	for range 120 {
		b.clock.Step(5 * time.Second)
		b.mustReconcile()
	}
}

// wantFewTries lets ten minutes pass, in which what is refused is tried ever less often.
func (b *bench) wantFewTries() {
	b.Helper()
	if b.tenMinutes(); b.refused < 5 || b.refused > 15 {
		b.Errorf("it was tried %d times in 10 min, want ever less often", b.refused)
	}
}

// recovers checks that all is well a while after what was in the way is gone.
func (b *bench) recovers(when string) {
	b.Helper()
	b.clock.Step(longestDelay)
	b.live()
	b.wantReason(when, ReasonReplicated)
}

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
				b.wantFewTries()
				if !strings.Contains(b.message(), "changes are frozen") {
					t.Errorf("the condition says %q", b.message())
				}
				b.clusters["west"].refusesApply, b.clusters["west"].refusesDelete = nil, nil
				b.recovers("")
			})
		}
	}
}

// No event tells when a namespace is gone, or a quota is free again.
func TestACopyIsMadeWithinAMinuteAfterWhatRefusedItHasPassed(t *testing.T) {
	b := newBench(t, aSource())
	forbidden := apierrors.NewForbidden(appsv1.Resource("deployments"), "web", errors.New("exceeded quota: pods"))
	b.clusters["west"].refusesApply = forbidden
	pass := func(long time.Duration) {
		for end := b.clock.Now().Add(long); b.clock.Now().Before(end); {
			left := end.Sub(b.clock.Now())
			b.clock.Step(min(left, cmp.Or(b.mustReconcile().RequeueAfter, left)))
		}
	}
	pass(time.Hour)
	if b.refused < 60 || b.refused > 70 {
		t.Errorf("it was tried %d times in an hour, want about once a minute", b.refused)
	}
	b.clusters["west"].refusesApply = nil
	pass(passingAgain)
	b.mustReconcile()
	if b.get("west") == nil {
		t.Errorf("it isn't there after %v: %s", passingAgain, b.message())
	}
	b.clusters["west"].refusesApply, b.refused = forbidden, 0
	b.edit("home", "kubectl", image("web:2"))
	pass(time.Hour)
	if b.refused > 25 {
		t.Errorf("a change was tried %d times in an hour, want ever less often", b.refused)
	}
}

func TestWhatIsLikelyToPassIsTold(t *testing.T) {
	web := appsv1.Resource("deployments")
	terminating := apierrors.NewForbidden(web, "web", errors.New("namespace default is being terminated"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	for want, errs := range map[bool][]error{
		true: {terminating, apierrors.NewForbidden(web, "web", errors.New("exceeded quota: compute"))},
		false: {apierrors.NewForbidden(web, "web", errors.New("denied by policy")),
			apierrors.NewBadRequest("exceeded quota")},
	} {
		for _, err := range errs {
			if passes(err) != want {
				t.Errorf("%v: likely to pass: %t, want %t", err, !want, want)
			}
		}
	}
}

func TestACopyIsBroughtUpToDateSoonAfterItsCredentialsAreRepaired(t *testing.T) {
	b := settled(t)
	b.edit("home", "kubectl", image("web:2"))
	b.clusters["west"].refusesApply = apierrors.NewUnauthorized("the token has expired")
	b.tenMinutes()
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

// An admission webhook may answer so to the creation of a namespace that doesn't exist.
func TestANamespaceThatIsSaidToExistAndDoesNotIsARefusal(t *testing.T) {
	b := newBench(t, aSource())
	b.clusters["west"].refusesCreate = apierrors.NewAlreadyExists(corev1.Resource("namespaces"), "shop")
	b.mustReconcile()
	if b.refused != 1 || !strings.Contains(b.message(), "west: creating namespace shop, which isn't there, was refused") {
		t.Errorf("in one reconcile it was tried %d times, want once; the condition says %q", b.refused, b.message())
	}
	b.wantFewTries()
	b.clusters["west"].refusesCreate = nil
	b.recovers("")
}

func TestANamespaceThatSomebodyElseCreatesMeanwhileIsUsed(t *testing.T) {
	b := newBench(t, aSource())
	b.fault = func(n int, commit func() error) error {
		if n == 2 { // after the record: that of the namespace in east
			b.acting = false
			b.namespace("east", open(TargetConfined))
			b.acting = true
			// Of the same time is what another reconcile read before, and keeps now.
			b.subject.spaces.keep(spaceID{"east", connectionTo(b.clusters["east"]), "shop"}, space{Missing: true}, epoch)
		}
		return commit()
	}
	b.mustReconcile()
	if b.copies() != "east,west" || b.wrote("create *v1.Namespace east") != 0 {
		t.Errorf("copies in %q; written %v", b.copies(), b.written)
	}
}

func TestANamespaceThatWasJustDeletedIsMadeAgain(t *testing.T) {
	b := settled(t)
	b.delete("west")
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: key.Namespace}}
	must.Succeed(t, b.clusters["west"].client.Delete(t.Context(), ns))
	b.subject.spaces.keep(spaceID{"west", connectionTo(b.clusters["west"]), key.Namespace}, space{Label: TargetConfined},
		b.clock.Now())
	b.mustReconcile()
	if b.get("west") == nil {
		t.Errorf("the copy isn't made again: %s", b.message())
	}
}

func TestALabelIsBelievedOfTheClusterAloneThatHasIt(t *testing.T) {
	for name, shared := range map[string]http.RoundTripper{"": nil, "of a shard": &http.Transport{}} {
		b := newBench(t, aSource())
		b.restart(makesNoNamespace)
		for _, name := range []multicluster.ClusterName{"west", "east"} {
			b.namespace(name, open(TargetUnrestricted))
			b.clusters[name].transport = shared
		}
		b.live()
		b.edit("home", "kubectl", image("web:2"))
		b.mustReconcile()
		reads := b.clusters["west"].spaces
		b.edit("home", "kubectl", image("web:3"))
		b.mustReconcile()
		if now := b.clusters["west"].spaces; now != reads || b.image("west") != "web:3" {
			t.Errorf("%s: its namespace was read %d times again, want never; image %s", name, now-reads, b.image("west"))
		}
		b.clusters["west"] = b.newCluster("west") // its Secret leads to another cluster
		b.clusters["west"].transport = &http.Transport{}
		b.namespace("west", nil)
		b.clock.Step(spaceLife / 2)
		b.mustReconcile()
		if b.copies() != "east" {
			t.Errorf("%s: copies in %q, want none in a namespace that isn't open: %s", name, b.copies(), b.message())
		}
	}
}

type transportFunc func(*http.Request) (*http.Response, error)

func (f transportFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestAConnectionWhoseTransportCannotBeComparedIsKnownByItsConfiguration(t *testing.T) {
	if _, ok := connectionTo(&fakeCluster{transport: transportFunc(nil)}).(*rest.Config); !ok {
		t.Error("it isn't, and can be no key of a map")
	}
}
