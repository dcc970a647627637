package replication

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/tenure-dev/tenure/test/certs"
	"github.com/tenure-dev/tenure/test/expect"
	"github.com/tenure-dev/tenure/test/must"
)

// state is what matters at the end of an act.
type state struct {
	Source, West, East *side
	Condition, Message string
}

type side struct {
	Labels, Annotations map[string]string
	Finalizers          []string
	Spec                appsv1.DeploymentSpec
	Ours                []string // the fields of a copy that belong to our field manager
}

func (b *bench) state() state {
	s := state{Source: sideOf(b.get("home")), West: copyOf(b.get("west")), East: copyOf(b.get("east"))}
	if s.Source != nil {
		s.Condition, s.Message = b.condition(), b.message()
	}
	return s
}

func sideOf(d *appsv1.Deployment) *side {
	if d == nil {
		return nil
	}
	return &side{Labels: d.Labels, Annotations: d.Annotations, Finalizers: d.Finalizers, Spec: d.Spec}
}

func copyOf(d *appsv1.Deployment) *side {
	s := sideOf(d)
	if s == nil {
		return nil
	}
	for _, entry := range d.ManagedFields {
		if entry.Manager == FieldManager && entry.Operation == metav1.ManagedFieldsOperationApply {
			fields, _, _ := strings.Cut(string(entry.FieldsV1.Raw), `,"f:status"`) // the fake client takes it for ours
			s.Ours = append(s.Ours, entry.Subresource+" "+fields)
		}
	}
	slices.Sort(s.Ours)
	return s
}

// acts are the life of a source. Each ends when all is quiet.
var acts = []struct {
	name string
	do   func(b *bench)
}{
	{"created", func(*bench) {}},
	{"its image changes", func(b *bench) { b.edit("home", "kubectl", image("web:2")) }},
	{"a copy is edited and another deleted", func(b *bench) {
		b.edit("west", "kubectl", image("evil"))
		b.delete("east")
	}},
	{"a target is removed", func(b *bench) { b.edit("home", "kubectl", annotated(AnnotationClusters, "west")) }},
	{"the label is removed", func(b *bench) {
		b.edit("home", "kubectl", unlabelled)
	}},
	{"the label is back", func(b *bench) {
		b.edit("home", "kubectl", func(d *appsv1.Deployment) {
			d.Labels[LabelReplicate] = "true"
			d.Annotations[AnnotationClusters] = "*"
		})
	}},
	{"deleted", func(b *bench) { b.delete("home") }},
}

func (b *bench) story() []state {
	b.Helper()
	var states []state
	for _, act := range acts {
		act.do(b)
		b.live()
		states = append(states, b.state())
	}
	return states
}

func TestEveryWriteMayFailAndTheEndIsTheSame(t *testing.T) {
	undisturbed := newBench(t, aSource())
	want := undisturbed.story()
	checkStory(t, want)
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "deployments"}, "web", errors.New("changed"))
	for i, fault := range []struct {
		name string
		hurt func(commit func() error) error
	}{
		{"error before the write", func(func() error) error { return apierrors.NewInternalError(errTimeout) }},
		{"reply lost", func(commit func() error) error { _ = commit(); return errTimeout }},
		{"conflict", func(func() error) error { return conflict }},
		{"refused", func(func() error) error { return apierrors.NewForbidden(schema.GroupResource{}, "x", errTimeout) }},
		{"killed before", func(func() error) error { return errCrash }},
		{"killed after", func(commit func() error) error { _ = commit(); return errCrash }},
	} {
		for site := 1; site <= undisturbed.sent; site++ {
			if testing.Short() && site%6 != i {
				continue // each write suffers one fault, and each fault befalls a sixth of the writes
			}
			t.Run(fmt.Sprintf("%s at write %d", fault.name, site), func(t *testing.T) {
				b := newBench(t, aSource())
				b.fault = func(n int, commit func() error) error {
					if n == site {
						return fault.hurt(commit)
					}
					return commit()
				}
				expect.Equal(t, "the states, as if undisturbed", want, b.story())
			})
		}
	}
}

// checkStory checks the undisturbed run, so that nobody compares with nonsense.
func checkStory(t *testing.T, states []state) {
	t.Helper()
	var got []string
	imageOf := func(copy *side) string {
		if copy == nil {
			return "none"
		}
		return copy.Spec.Template.Spec.Containers[0].Image
	}
	for _, s := range states {
		got = append(got, fmt.Sprintf("%s; east %s, west %s", s.Condition, imageOf(s.East), imageOf(s.West)))
	}
	want := []string{
		"True Replicated; east web:1, west web:1",
		"True Replicated; east web:2, west web:2",
		"True Replicated; east web:2, west web:2",
		"True Replicated; east none, west web:2",
		"; east none, west none",
		"True Replicated; east web:2, west web:2",
		"; east none, west none",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("undisturbed (-want +got):\n%s", diff)
	}
	if states[4].Source == nil || states[6].Source != nil {
		t.Fatalf("the source: %v without the label, %v after its deletion", states[4].Source, states[6].Source)
	}
	expect.Equal(t, "something is left on the source without the label", &side{Labels: map[string]string{"app": "web"},
		Annotations: map[string]string{AnnotationClusters: "west", "team": "shop"},
		Spec:        states[4].Source.Spec}, states[4].Source)
}

func TestAnUndisturbedLifeHasTheFewestWrites(t *testing.T) {
	b := settled(t)
	b.wantWritten("patch home", "create *v1.Namespace east", "apply east", "create *v1.Namespace west", "apply west",
		"status home", "status home")
	sent := b.sent
	b.written = nil
	b.restart()
	b.live()
	if sent != 7 || b.sent != sent {
		t.Errorf("%d writes sent, and a new process without anything to do sent %d", sent, b.sent-sent)
	}
}

func TestAForeignDeploymentIsNeverTouched(t *testing.T) {
	b := newBench(t, aSource())
	stranger := aSource()
	stranger.ObjectMeta = metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name,
		Labels: map[string]string{"app": "other"}}
	stranger.Spec.Template.Spec.Containers[0].Image = "other:1"
	must.Succeed(t, b.clusters["west"].client.Create(context.Background(), stranger))
	before := b.get("west")
	for range 5 {
		b.mustReconcile()
		b.clock.Step(cacheGrace)
	}
	expect.Equal(t, "the stranger has changed", before, b.get("west"))
	b.wantReason("", ReasonForeign)
	if b.get("east") == nil {
		t.Error("the other target has no copy")
	}
	b.wantOneEvent(ReasonForeign)
	b.delete("west")
	b.live()
	b.wantReason("once it was gone", ReasonReplicated)
}

func TestRemovingTheLabelLeavesAForeignDeploymentAlone(t *testing.T) {
	b := settled(t)
	b.edit("west", "somebody", func(d *appsv1.Deployment) {
		d.Annotations[AnnotationSource], d.Annotations[AnnotationOwnerUID] = "else/shop/web", "uid-of-its-web"
	})
	b.change(unlabelled)
	if b.copies() != "west" || len(b.get("home").Finalizers) > 0 {
		t.Errorf("Deployments in %q, want west's; finalizers %v", b.copies(), b.get("home").Finalizers)
	}
}

func TestBadAnnotationsWriteNothingButTheCondition(t *testing.T) {
	b := settled(t, annotated(AnnotationReplicas, "share"))
	b.wantWritten("status home")
	for _, text := range []string{b.message(), b.events()} {
		if !strings.Contains(text, AnnotationReplicas) || !strings.Contains(text, "share") {
			t.Errorf("%q doesn't name the annotation and its value", text)
		}
	}
	b.change(annotated(AnnotationReplicas, "duplicate"))
	b.wantReason("corrected", ReasonReplicated)
	b.edit("home", "kubectl", annotated(AnnotationClusters, "???"))
	b.edit("home", "kubectl", image("web:9"))
	b.written = nil
	b.live()
	b.wantWritten("status home") // though there are copies
}

func TestASourceWhoseRecordIsRefusedIsTold(t *testing.T) {
	b, deployments := newBench(t, aSource()), schema.GroupResource{Resource: "deployments"}
	for _, c := range []struct {
		fails error
		told  string // "": of no refusal
	}{
		{apierrors.NewForbidden(deployments, "web", errors.New("frozen by policy")), "frozen by policy"},
		{apierrors.NewInternalError(errors.New(`failed calling webhook "v.example.com": no endpoints`)),
			"failed calling webhook"},
		{apierrors.NewConflict(deployments, "web", // a webhook chooses the code of its answer
			errors.New(`admission webhook "v.example.com" denied the request: frozen`)), "denied the request"},
		{apierrors.NewInternalError(errors.New("etcdserver: leader changed")), ""}, // it concerns all requests
		{errTimeout, ""}, // no answer isn't a refusal
	} {
		b.fault = func(int, func() error) error { return c.fails }
		_, err := b.reconcile()
		if text := b.events(); err == nil || strings.Contains(text, ReasonRecordRefused) != (c.told != "") ||
			!strings.Contains(text, c.told) {
			t.Errorf("%v: error %v, events %q; want %q", c.fails, err, text, c.told)
		}
	}
}

func TestTheConditionGoesWithTheLabelWhereNothingWasCopied(t *testing.T) {
	for name, spoil := range map[string]func(b *bench){
		ReasonInvalidAnnotation: func(b *bench) { b.edit("home", "kubectl", annotated(AnnotationReplicas, "share")) },
		ReasonForbidden: func(b *bench) {
			b.restart(func(c *Config) { c.ForbiddenNamespaces = []string{key.Namespace} })
		},
	} {
		b := newBench(t, aSource())
		spoil(b)
		b.live()
		b.wantReason("", name)
		b.edit("home", "kubectl", unlabelled)
		b.written = nil
		b.live()
		b.wantWritten("status home")
		if b.condition() != "" {
			t.Errorf("%s: without the label: condition %q", name, b.condition())
		}
		b.wantQuiet()
	}
}

// Whatever is wrong with one copy, it mustn't end the process, nor hold up the source's other copies.
func TestAFailureInTheWorkOnOneCopyHoldsUpNoOther(t *testing.T) {
	for name, c := range map[string]struct {
		hurt func(b *bench, broken bool)
		says string
	}{
		"a panic": {func(b *bench, broken bool) {
			b.putOff = func(name multicluster.ClusterName) (time.Duration, bool) {
				if broken && name == "west" {
					panic("a defect")
				}
				return 0, false
			}
		}, "the work on the copy panicked: a defect"},
		"an unforeseen error": {func(b *bench, broken bool) {
			b.clusters["west"].refuses = nil
			if broken {
				b.clusters["west"].refuses = errors.New("a riddle")
			}
		}, "a riddle"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, aSource(annotated(AnnotationClusters, "west,east,north")))
			b.clusters["north"] = b.newCluster("north")
			b.clusters["north"].refuses = fmt.Errorf("giving up: %w", context.DeadlineExceeded)
			c.hurt(b, true)
			logged := ""
			ctx := ctrl.LoggerInto(t.Context(), funcr.New(func(_, args string) { logged += args }, funcr.Options{}))
			var last time.Duration
			for range 12 { // the silent target is tried every 15 s in the end
				result, err := b.subject.Reconcile(ctx, testRequest)
				must.Succeed(t, err)
				last = result.RequeueAfter
				b.clock.Step(last)
			}
			if last == 0 || last > longestSilence {
				t.Errorf("it comes back after %v, want the %v of the silent target at most", last, longestSilence)
			}
			if !strings.Contains(logged, c.says) || !strings.Contains(logged, `"target"="west"`) {
				t.Errorf("logged: %s", logged)
			}
			if copies := b.copies(); copies != "east" {
				t.Errorf("copies in %q, want only east", copies)
			}
			b.clusters["north"].refuses = nil
			for range 3 {
				b.clock.Step(longestSilence)
				b.mustReconcile()
				b.rollOut("east")
				b.rollOut("north")
			}
			if b.comesBack(1, longestDelay); b.copies() != "east,north" { // for west alone
				t.Errorf("copies in %q, want all but west", b.copies())
			}
			c.hurt(b, false)
			b.live()
			b.wantReason("", ReasonReplicated)
		})
	}
}

// A server's HTTP/2 stream may be reset, by a proxy that restarts, say.
func TestABrokenStreamIsNoAnswer(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		panic(http.ErrAbortHandler)
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	asking, err := rest.UnversionedRESTClientFor(&rest.Config{Host: server.URL,
		TLSClientConfig: rest.TLSClientConfig{CAData: certs.Of(server)}, ContentConfig: rest.ContentConfig{
			NegotiatedSerializer: scheme.Codecs.WithoutConversion(),
		}})
	must.Succeed(t, err)
	err = asking.Patch(types.ApplyYAMLPatchType).AbsPath("/x").Body([]byte("{}")).Do(t.Context()).Error()
	if err == nil || !strings.Contains(err.Error(), "stream error") {
		t.Fatalf("got %v, want a stream that was reset", err)
	}
	if !noAnswer(err) {
		t.Errorf("%T %v is an answer", err, err)
	}
}

func TestAClusterThatIsAwayIsCleanedUpWhenItComesBack(t *testing.T) {
	for name, end := range map[string]func(b *bench){
		"source deleted": func(b *bench) { b.delete("home") },
		"label removed": func(b *bench) {
			b.edit("home", "kubectl", unlabelled)
		},
		"list of copies lost": func(b *bench) {
			b.edit("home", "kubectl", func(d *appsv1.Deployment) { delete(d.Annotations, AnnotationCopies) })
			b.delete("home")
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := settled(t)
			b.down["west"] = b.clock.Now()
			end(b)
			b.live()
			if b.copies() != "west" || !slices.Contains(b.get("home").Finalizers, Finalizer) {
				t.Fatalf("copies in %q, want only west; finalizers %v", b.copies(), b.get("home").Finalizers)
			}
			if message := b.message(); !strings.Contains(message, "west (to be removed): away since") {
				t.Errorf("message %q", message)
			}
			b.restart()
			delete(b.down, "west")
			b.live()
			if b.get("west") != nil {
				t.Error("the copy is still there")
			}
			if source := b.get("home"); source != nil && (len(source.Finalizers) > 0 ||
				source.Annotations[AnnotationCopies] != "") {
				t.Errorf("still on the source: %v %v", source.Finalizers, source.Annotations)
			}
		})
	}
}

func TestAClusterThatIsGoneForGoodIsTakenOffTheListByHand(t *testing.T) {
	b := newBench(t, aSource(annotated(AnnotationCopies, "gone")))
	b.clock.Step(connectGrace)
	b.live()
	b.delete("home")
	b.live()
	if b.get("home") == nil || b.copies() != "" {
		t.Fatalf("source %v, copies in %q", b.get("home") != nil, b.copies())
	}
	if message := b.message(); !strings.Contains(message, "gone (to be removed): isn't known") ||
		!strings.Contains(message, AnnotationCopies) {
		t.Errorf("%q doesn't say what to do", message)
	}
	b.change(annotated(AnnotationCopies, ""))
	if b.get("home") != nil {
		t.Error("the source is still there")
	}
}

func TestDivideMovesAShareAfterTheGraceAndBack(t *testing.T) {
	b := newBench(t, divided(annotated(AnnotationWeights, "west=3")))
	b.live()
	b.wantShares("at first", 7, 3) // 7.5 and 2.5: of equal remainders the first by name is rounded up
	b.down["west"] = b.clock.Now()
	b.comesBack(0, unknownAgain)
	b.clock.Step(b.subject.config.Grace - 1)
	b.comesBack(1, 1) // at the exact end of the grace
	b.wantShares("within the grace", 7, 3)
	b.clock.Step(1)
	b.live()
	b.wantShares("after the grace", 7, 10)
	b.restart()
	b.live()
	b.wantShares("at the next holder, whose grace has just begun", 7, 10)
	delete(b.down, "west")
	b.live()
	b.wantShares("back", 7, 3)
	b.wantReason("", ReasonReplicated)
}
