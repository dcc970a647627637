package replication

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/tenure-dev/tenure/test/expect"
	"github.com/tenure-dev/tenure/test/must"
)

// brief is a step as a table has room for it.
type brief struct {
	Act   act
	Form  string // of the configuration: full or lean
	Drift []string
	State copyState
	After time.Duration
}

func TestDecideCopy(t *testing.T) {
	apply, update := metav1.ManagedFieldsOperationApply, metav1.ManagedFieldsOperationUpdate
	want := mustWant(t, aSource(), nil)
	lean, err := toDeployment(want.Lean)
	must.Succeed(t, err)
	copyOf := func(options ...func(*appsv1.Deployment)) *appsv1.Deployment { return aCopy(t, options...) }
	unmarked := func(d *appsv1.Deployment) { delete(d.Annotations, AnnotationSource) }
	ofOther := func(d *appsv1.Deployment) { d.Annotations[AnnotationSource] = "home/shop/other" }
	ofOtherHome := func(d *appsv1.Deployment) { d.Annotations[AnnotationSourceCluster] = "uid-of-another" }
	ofNoHome := func(d *appsv1.Deployment) {
		delete(d.Annotations, AnnotationSourceCluster)
		d.Annotations[AnnotationApplied] = "of an earlier version"
	}
	deleted := func(d *appsv1.Deployment) { d.DeletionTimestamp = new(metav1.NewTime(epoch)) }
	leaned := func(d *appsv1.Deployment) { d.Annotations[AnnotationApplied] = lean.Annotations[AnnotationApplied] }
	stuck := func(d *appsv1.Deployment) {
		d.Status.AvailableReplicas = 1
		d.Status.Conditions = []appsv1.DeploymentCondition{
			{Type: appsv1.DeploymentAvailable, Status: corev1.ConditionFalse, Reason: "MinimumReplicasUnavailable"},
			{Type: appsv1.DeploymentProgressing, Status: corev1.ConditionFalse, Reason: "ProgressDeadlineExceeded",
				Message: `ReplicaSet "web-1" has timed out progressing.`},
		}
	}
	managedStatus := func(d *appsv1.Deployment) {
		d.ManagedFields = append(d.ManagedFields, metav1.ManagedFieldsEntry{Manager: "kube-controller-manager",
			Operation: update, Subresource: "status",
			FieldsType: "FieldsV1", FieldsV1: &metav1.FieldsV1{Raw: []byte(`{"f:status":{"f:replicas":{}}}`)}})
	}
	judged := copyNote{JudgedUID: "uid-of-copy", JudgedGeneration: 2}
	taken := copyNote{JudgedUID: "uid-of-copy", JudgedGeneration: 2, ReplicasTaken: true}
	repaired := copyNote{JudgedUID: "uid-of-copy", JudgedGeneration: 2, Repairs: 5, RepairedPaths: "spec.replicas",
		RepairedAt: epoch.Add(-time.Second)}
	setBack := func(d *appsv1.Deployment) {
		d.Annotations[AnnotationApplied] = "of web:0"
		image("web:0")(d)
	}
	digestAndImage := []string{"metadata.annotations.tenure.dev/applied",
		`spec.template.spec.containers[name="web"].image`}
	applied := copyNote{JudgedUID: "uid-of-copy", JudgedGeneration: 2,
		Applied: want.Full.GetAnnotations()[AnnotationApplied]}
	foreign := copyNote{HoldKey: "foreign 7", HoldUntil: epoch.Add(time.Minute)}
	appliedAgain := applied
	appliedAgain.Repairs, appliedAgain.RepairedPaths = 5, strings.Join(digestAndImage, ",")
	appliedAgain.RepairedAt = epoch.Add(-time.Second)
	cached := func(options ...func(*appsv1.Deployment)) copyView {
		return copyView{Want: want, Copy: copyOf(options...)}
	}
	noted := func(note copyNote, options ...func(*appsv1.Deployment)) copyView {
		return copyView{Want: want, Copy: copyOf(options...), Note: note}
	}
	fresh := func(options ...func(*appsv1.Deployment)) copyView { // and the cache shows the same version
		return copyView{Want: want, Copy: copyOf(options...), Live: true, Cached: "7"}
	}
	look, full := brief{Act: actLook}, func(drift ...string) brief {
		return brief{Act: actApply, Form: "full", Drift: drift}
	}
	for name, c := range map[string]struct {
		view copyView
		want brief
	}{
		"none is there: one is created":      {copyView{Want: want}, brief{Act: actCreate, Form: "full"}},
		"none is there live: one is created": {copyView{Want: want, Live: true}, brief{Act: actCreate, Form: "full"}},
		"one we have just made isn't made anew": {copyView{Want: want, Note: copyNote{Written: epoch}},
			brief{State: stateProgressing, After: cacheGrace}},
		"it is as wanted": {cached(), brief{State: stateAvailable}},
		"it isn't rolled out": {cached(func(d *appsv1.Deployment) { d.Status.AvailableReplicas = 2 }),
			brief{State: stateProgressing}},
		"its rollout hasn't begun": {cached(func(d *appsv1.Deployment) { d.Status.ObservedGeneration = 1 }),
			brief{State: stateProgressing}},
		"its rollout is stalled": {cached(stuck), brief{State: stateStalled}},
		"another rollout hasn't begun": {cached(stuck, func(d *appsv1.Deployment) { d.Generation++ }),
			brief{State: stateProgressing}},
		"old Pods are left": {cached(func(d *appsv1.Deployment) { d.Status.Replicas = 4 }),
			brief{State: stateProgressing}},
		"it has drifted: whose replicas are they": {cached(image("evil")), look},
		"it has drifted, and that is known": {noted(judged, image("evil")),
			full(`spec.template.spec.containers[name="web"].image`)},
		"an entry of a keyed list is gone": {noted(judged, func(d *appsv1.Deployment) {
			d.Spec.Template.Spec.Containers[0].Env = d.Spec.Template.Spec.Containers[0].Env[:1]
		}), full(`spec.template.spec.containers[name="web"].env[name="B"].name`,
			`spec.template.spec.containers[name="web"].env[name="B"].value`)},
		"variables are in another order": {noted(judged, func(d *appsv1.Deployment) {
			slices.Reverse(d.Spec.Template.Spec.Containers[0].Env)
		}), full(`spec.template.spec.containers[name="web"].env`)},
		"others' variables are between ours": {noted(judged, func(d *appsv1.Deployment) {
			env := &d.Spec.Template.Spec.Containers[0].Env
			*env = slices.Insert(*env, 1, corev1.EnvVar{Name: "0"})
		}), brief{State: stateAvailable}},
		"somebody has paused it": {cached(func(d *appsv1.Deployment) {
			d.Spec.Paused, d.Status.AvailableReplicas = true, 2
		}), brief{State: stateStalled}},
		"what others add is none of ours": {noted(judged, func(d *appsv1.Deployment) {
			d.Labels["other"], d.Annotations["other"], d.Spec.MinReadySeconds = "x", "y", 3
			d.Spec.Template.Spec.Containers = append([]corev1.Container{{Name: "sidecar"}}, d.Spec.Template.Spec.Containers...)
		}), brief{State: stateAvailable}},
		"it was scaled by hand": {fresh(scaled(9), replicasBy("kubectl", update)), full("spec.replicas")},
		"an autoscaler has taken the replicas": {fresh(scaled(9), replicasBy("kube-controller-manager", update)),
			brief{Act: actApply, Form: "lean"}},
		"an autoscaler of k3s has taken the replicas": {fresh(scaled(9), leaned, replicasBy("k3s", update)),
			brief{State: stateProgressing}},
		"an autoscaler of MicroK8s has taken the replicas": {fresh(scaled(9), leaned, replicasBy("kubelite", update)),
			brief{State: stateProgressing}},
		"somebody has applied the replicas": {fresh(scaled(9), replicasBy("gitops", apply)),
			brief{Act: actApply, Form: "lean"}},
		"an autoscaler was seen to scale it": {
			cached(scaled(9), image("evil"), replicasBy("kube-controller-manager", update), managedStatus),
			brief{Act: actApply, Form: "lean"}},
		"the replicas were left to somebody": {noted(taken, scaled(9), leaned), brief{State: stateProgressing}},
		"the replicas were left, and somebody else scaled by hand": {fresh(scaled(9), leaned, replicasBy("kubectl", update)),
			full()},
		"what is known is of an earlier generation": {
			noted(copyNote{JudgedUID: "uid-of-copy", JudgedGeneration: 1}, scaled(9)), look},
		"repairs don't last":   {noted(repaired, scaled(9)), brief{State: stateContested, After: 3 * time.Second}},
		"other repairs lasted": {noted(repaired, image("evil")), full(`spec.template.spec.containers[name="web"].image`)},
		"the source has changed while repairs don't last": {
			copyView{Want: mustWant(t, aSource(image("web:2")), nil), Copy: copyOf(scaled(9)), Note: repaired}, full()},
		"it has an older digest":          {noted(judged, setBack), full()},
		"it was set back with its digest": {noted(applied, setBack), full(digestAndImage...)},
		"it is set back with its digest each time": {noted(appliedAgain, setBack),
			brief{State: stateContested, After: 3 * time.Second}},
		"the cache shows what our write replaced": {
			noted(copyNote{Replaced: "7", Written: epoch.Add(-time.Second)}, image("web:0")),
			brief{State: stateProgressing, After: cacheGrace}},
		"and it has done so for too long": {noted(copyNote{Replaced: "7", Written: epoch.Add(-cacheGrace)}, image("web:0")),
			look},
		"it belongs to another source": {cached(ofOther), look},
		"it certainly does":            {copyView{Want: want, Copy: copyOf(ofOther), Live: true}, brief{State: stateForeign}},

		"it is from another cluster of that name": {cached(ofOtherHome), look},
		"it certainly is": {copyView{Want: want, Copy: copyOf(ofOtherHome), Live: true},
			brief{State: stateForeign}},
		"it is, and has no other mark": {
			copyView{Want: want, Copy: copyOf(ofOtherHome, unmarked, replicasBy(FieldManager, apply)), Live: true},
			brief{State: stateForeign}},
		"it says nothing about the cluster": {noted(judged, ofNoHome), full()},
		"it isn't looked at again and again": {copyView{Want: want, Copy: copyOf(ofOther), Cached: "7", Note: foreign},
			brief{State: stateForeign, After: time.Minute}},
		"but when it has changed": {copyView{Want: want, Copy: copyOf(ofOther), Cached: "8", Note: foreign}, look},
		"it has no mark":          {cached(unmarked), look},
		"it has no mark, and we didn't apply it": {
			copyView{Want: want, Copy: copyOf(unmarked, replicasBy(FieldManager, update)), Live: true},
			brief{State: stateForeign}},
		"it has no mark, and was a source itself": {fresh(unmarked, conditionByUs), brief{State: stateForeign}},
		"it has no mark, and we did": {fresh(unmarked, replicasBy(FieldManager, apply)),
			full("metadata.annotations.tenure.dev/source")},
		"a source of that name was there before": {
			fresh(func(d *appsv1.Deployment) { d.Annotations[AnnotationOwnerUID] = "old" }),
			full("metadata.annotations.tenure.dev/owner-uid")},
		"it is being deleted": {cached(deleted), brief{State: stateLeaving, After: hiddenPause}},
		"the cache doesn't show it": {copyView{Want: want, Copy: copyOf(), Live: true},
			brief{State: stateAvailable, After: cacheGrace}},
		"the cache doesn't show it for too long": {
			copyView{Want: want, Copy: copyOf(), Live: true, Note: copyNote{HiddenSince: epoch.Add(-cacheGrace)}}, full()},
		"the cache doesn't show it, whatever is applied": {
			copyView{Want: want, Copy: copyOf(), Live: true, Note: copyNote{HiddenSince: epoch.Add(-time.Hour),
				Restored: epoch.Add(1 - hiddenPause)}}, brief{State: stateAvailable, After: hiddenPause}},
		"a refused request isn't sent again at once": {
			copyView{Want: want, Note: copyNote{HoldKey: "refused " + want.Full.GetAnnotations()[AnnotationApplied],
				HoldUntil: epoch.Add(9)}}, brief{State: stateRefused, After: 9}},

		"none is wanted and none is seen":  {copyView{}, look},
		"none is wanted and there is none": {copyView{Live: true}, brief{State: stateGone}},
		"none is wanted and there is one":  {copyView{Copy: copyOf()}, brief{Act: actDelete}},
		"none is wanted and it is being deleted": {copyView{Copy: copyOf(deleted)},
			brief{State: stateLeaving, After: hiddenPause}},
		"none is wanted and another's is seen":  {copyView{Copy: copyOf(ofOther)}, look},
		"none is wanted and another's is there": {copyView{Copy: copyOf(ofOther), Live: true}, brief{State: stateGone}},
		"none is wanted and another cluster's is there": {copyView{Copy: copyOf(ofOtherHome), Live: true},
			brief{State: stateGone}},
		"none is wanted, the mark is gone: a look": {copyView{Copy: copyOf(unmarked)}, look},
		"none is wanted, the mark is gone: ours": {
			copyView{Copy: copyOf(unmarked, replicasBy(FieldManager, apply)), Live: true}, brief{Act: actDelete}},
		"none is wanted, and one that was a source itself is there": {
			copyView{Copy: copyOf(unmarked, conditionByUs), Live: true, Cached: "7"}, brief{State: stateGone}},
	} {
		t.Run(name, func(t *testing.T) {
			v := c.view
			v.Source, v.SourceCluster, v.Now, v.Scalers = "home/shop/web", homeUID, epoch, DefaultScalers
			step, err := decideCopy(v)
			must.Succeed(t, err)
			got := brief{Act: step.Act, Drift: step.Drift, State: step.Outcome.State, After: step.Outcome.After}
			if v.Want != nil && step.Config == v.Want.Full {
				got.Form = "full"
			} else if v.Want != nil && step.Config == v.Want.Lean {
				got.Form = "lean"
			}
			expect.Equal(t, "decision", c.want, got)
			if v.Live || v.Copy == nil {
				return
			}
			v.Copy = v.Copy.DeepCopy()
			_, err = TrimCopy(v.Copy)
			must.Succeed(t, err)
			if trimmed, err := decideCopy(v); err != nil || !cmp.Equal(step, trimmed) {
				t.Errorf("a trimmed copy decides otherwise, %v:\n%s", err, cmp.Diff(step, trimmed))
			}
		})
	}
}

func TestACopyWhoseRolloutIsPausedSaysWhoHasPausedIt(t *testing.T) {
	paused := func(d *appsv1.Deployment) { d.Spec.Paused = true }
	without := func(d *appsv1.Deployment) { d.Status = appsv1.DeploymentStatus{ObservedGeneration: 2} }
	want := mustWant(t, aSource(paused), nil)
	fresh, err := toDeployment(want.Full)
	must.Succeed(t, err)
	fresh.Generation = 2
	without(fresh)
	complete := fresh.DeepCopy()
	complete.Status = aCopy(t).Status
	for name, c := range map[string]struct {
		view  copyView
		state copyState
		text  string
	}{
		"by the source, and it was made since": {copyView{Want: want, Copy: fresh}, stateStalled,
			"0/3, the source is paused (kubectl rollout resume)"},
		"by the source, when it was complete": {copyView{Want: want, Copy: complete}, stateAvailable, ""},
		"by somebody there": {copyView{Want: mustWant(t, aSource(), nil), Copy: aCopy(t, paused, without)}, stateStalled,
			"0/3, somebody has paused its rollouts there (kubectl rollout resume)"},
	} {
		c.view.Source, c.view.SourceCluster, c.view.Now = "home/shop/web", homeUID, epoch
		step, err := decideCopy(c.view)
		if err != nil || step.Act != actNone || step.Outcome.State != c.state || step.Outcome.Text != c.text {
			t.Errorf("%s: %+v, %v, want state %d with %q", name, step, err, c.state, c.text)
		}
	}
}

func TestACopyIsTheSourceWithoutWhatBelongsToOthers(t *testing.T) {
	source := aSource(annotated("kubectl.kubernetes.io/last-applied-configuration", "{}"),
		annotated("deployment.kubernetes.io/revision", "4"),
		annotated(AnnotationCopies, "west"))
	source.Spec.Template.Spec.InitContainers = []corev1.Container{{Name: "first", Image: "first:1"}}
	base, err := newTemplate(source, home, homeUID)
	must.Succeed(t, err)
	want, err := base.want(new(int32(7)), override{Images: map[string]string{
		"web": "mirror/web:1", "first": "mirror/first:1"}})
	must.Succeed(t, err)
	got := want.Lean.DeepCopy()
	annotations := got.GetAnnotations()
	delete(annotations, AnnotationApplied)
	got.SetAnnotations(annotations)
	expected := map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment",
		"metadata": map[string]any{"namespace": "shop", "name": "web", "labels": map[string]any{"app": "web"},
			"annotations": map[string]any{"team": "shop", AnnotationOwnerUID: "uid-of-web", AnnotationSource: "home/shop/web",
				AnnotationSourceCluster: "uid-of-home"}},
		"spec": map[string]any{
			"selector": map[string]any{"matchLabels": map[string]any{"app": "web"}},
			"template": map[string]any{
				"metadata": map[string]any{"labels": map[string]any{"app": "web"}},
				"spec": map[string]any{
					"initContainers": []any{map[string]any{"name": "first", "image": "mirror/first:1"}},
					"containers": []any{map[string]any{
						"name": "web", "image": "mirror/web:1",
						"env":   []any{map[string]any{"name": "A", "value": "1"}, map[string]any{"name": "B", "value": "2"}},
						"ports": []any{map[string]any{"containerPort": int64(80), "protocol": "TCP"}},
					}},
				},
			},
		},
	}
	expect.Equal(t, "the copy", expected, got.Object)
	if want.replicas() != 7 {
		t.Errorf("%d replicas, want 7", want.replicas())
	}
	if mustWant(t, source, nil).replicas() != 3 {
		t.Error("without a figure of its own it has the source's")
	}
}

func TestTheDigestFollowsWhatIsApplied(t *testing.T) {
	digest := func(options ...func(*appsv1.Deployment)) string {
		return mustWant(t, aSource(options...), nil).Full.GetAnnotations()[AnnotationApplied]
	}
	if digest() != digest() {
		t.Error("another digest for the same")
	}
	if digest() != digest(annotated(AnnotationCopies, "west"), annotated(AnnotationClusters, "*")) {
		t.Error("what isn't copied changes the digest")
	}
	if digest() == digest(image("web:2")) || digest() == digest(scaled(9)) {
		t.Error("a change doesn't change the digest")
	}
}

func TestRecordBefore(t *testing.T) {
	ok, grace := targetHealth{Usable: true}, 5*time.Minute
	awayFor := func(d time.Duration) targetHealth { return targetHealth{Since: epoch.Add(-d)} }
	divide := wish{Divide: true}
	for name, c := range map[string]struct {
		record record
		wish   wish
		west   targetHealth
		want   record
		after  time.Duration
	}{
		"at first": {record{}, wish{}, ok, record{true, true, names{"east", "west"}, nil, false}, 0},
		"a cluster that is left stays listed": {record{true, true, names{"north"}, nil, false}, wish{}, ok,
			record{true, true, names{"east", "north", "west"}, nil, false}, 0},
		"duplicate gives nobody up": {record{}, wish{}, awayFor(time.Hour),
			record{true, true, names{"east", "west"}, nil, false}, 0},
		"within the grace": {record{}, divide, awayFor(time.Minute),
			record{true, true, names{"east", "west"}, nil, false}, 4 * time.Minute},
		"after the grace": {record{}, divide, awayFor(grace),
			record{true, true, names{"east", "west"}, names{"west"}, false}, 0},
		"given up by another process": {
			record{GivenUp: names{"west"}}, divide, awayFor(0),
			record{true, true, names{"east", "west"}, names{"west"}, false}, 0},
		"it was guessed": {record{true, true, names{"north"}, nil, true}, wish{}, ok,
			record{true, true, names{"east", "north", "west"}, nil, true}, 0},
		"it is back": {record{GivenUp: names{"west"}}, divide, ok, record{true, true, names{"east", "west"}, nil, false}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			got, after := c.record.before(c.wish, names{"east", "west"}, names{"west", "east", "north"},
				map[multicluster.ClusterName]targetHealth{"east": ok, "west": c.west}, epoch, grace)
			if diff := cmp.Diff(c.want, got, cmpopts.EquateEmpty()); diff != "" || after != c.after {
				t.Errorf("after %s, want %s; (-want +got):\n%s", after, c.after, diff)
			}
			source := aSource()
			got.put(source)
			expect.Equal(t, "written and read", got, recordOf(source), cmpopts.EquateEmpty())
		})
	}
}

func TestWhatOtherToolsTrackByIsNotCopied(t *testing.T) {
	source := aSource(func(d *appsv1.Deployment) {
		for _, key := range []string{"app.kubernetes.io/managed-by", "app.kubernetes.io/instance",
			"argocd.argoproj.io/instance",
			"kustomize.toolkit.fluxcd.io/name", "helm.toolkit.fluxcd.io/name", "fleet.cattle.io/bundle-id",
			"objectset.rio.cattle.io/hash",
			"applyset.kubernetes.io/part-of", "kapp.k14s.io/app", "tenure.dev/anything"} {
			d.Labels[key] = "x"
		}
		for _, key := range []string{"argocd.argoproj.io/tracking-id", "meta.helm.sh/release-name",
			"meta.helm.sh/release-namespace",
			"kustomize.toolkit.fluxcd.io/checksum", "objectset.rio.cattle.io/applied", "config.kubernetes.io/owning-inventory",
			"kubectl.kubernetes.io/last-applied-configuration"} {
			d.Annotations[key] = "x"
		}
		d.Labels["app.kubernetes.io/name"], d.Labels["notargoproj.io/x"] = "web", "kept"
		d.Annotations["helm.sh"], d.Annotations["example.com/helm.sh"] = "kept", "kept"
		d.Spec.Template.Labels["app.kubernetes.io/instance"] = "what selectors and Services find Pods by"
	})
	got := mustWant(t, source, nil).Full
	labels := map[string]string{"app": "web", "app.kubernetes.io/name": "web", "notargoproj.io/x": "kept"}
	expect.Equal(t, "labels", labels, got.GetLabels())
	annotations := got.GetAnnotations()
	delete(annotations, AnnotationApplied)
	want := map[string]string{"team": "shop", "helm.sh": "kept", "example.com/helm.sh": "kept",
		AnnotationOwnerUID: "uid-of-web", AnnotationSource: "home/shop/web", AnnotationSourceCluster: "uid-of-home"}
	expect.Equal(t, "annotations", want, annotations)
	pods, _, _ := unstructured.NestedStringMap(got.Object, "spec", "template", "metadata", "labels")
	if pods["app.kubernetes.io/instance"] == "" {
		t.Error("the Pods have lost a label")
	}
}

func TestSummarize(t *testing.T) {
	east := outcome{Cluster: "east", Wanted: true, State: stateAvailable, Ready: 3, Desired: 3}
	for name, c := range map[string]struct {
		outcomes []outcome
		want     string
	}{
		"all are available": {[]outcome{east}, "True Replicated generation 4: 1 of 1 clusters available; east 3/3"},
		"one is on its way": {[]outcome{{Cluster: "west", Wanted: true, State: stateProgressing, Ready: 1, Desired: 5}, east},
			"False Progressing generation 4: 1 of 2 clusters available; east 3/3, west 1/5"},
		"the worst is the reason": {[]outcome{east, {Cluster: "a", Wanted: true, State: stateProgressing},
			{Cluster: "b", Wanted: true, State: stateForeign, Text: "taken"}, {Cluster: "c", Wanted: true, State: stateAway}},
			"False ForeignDeployment generation 4: 1 of 4 clusters available; a 0/0, b: taken, c: away, east 3/3"},
		"one gets no further": {[]outcome{{Cluster: "west", Wanted: true, State: stateStalled, Text: "0/5, stuck"},
			{Cluster: "old", State: stateLeaving}, east},
			"False RolloutStalled generation 4: 1 of 2 clusters available; east 3/3, old (to be removed): being deleted, " +
				"west: 0/5, stuck"},
		"a target that is removed doesn't count": {[]outcome{east, {Cluster: "old", State: stateAway, Text: "away since 1"},
			{Cluster: "older", State: stateGone}},
			"True Replicated generation 4: 1 of 1 clusters available; east 3/3, old (to be removed): away since 1"},
		"there are none": {nil, "False NoTargets generation 4: 0 of 0 clusters available"},
	} {
		t.Run(name, func(t *testing.T) {
			got := summarize(c.outcomes, 4)
			expect.Equal(t, "the condition", c.want, strings.Join([]string{string(got.Status), got.Reason, got.Message}, " "))
		})
	}
}

func TestUpdateWritesNewsAtOnceAndFiguresNotTooOften(t *testing.T) {
	now := epoch.Add(300 * time.Millisecond)
	was := appsv1.DeploymentCondition{Status: "False", Reason: "Progressing", Message: "1/3",
		LastUpdateTime: metav1.NewTime(epoch), LastTransitionTime: metav1.NewTime(epoch.Add(-time.Hour))}
	for name, c := range map[string]struct {
		old            *appsv1.DeploymentCondition
		pause          time.Duration
		status, reason string
		message        string
		write          bool
		wait           time.Duration
		transition     time.Time
	}{
		"there was none": {nil, 0, "False", "Progressing", "1/3", true, 0, now},
		"nothing is new": {&was, time.Second, "False", "Progressing", "1/3", false, 0, was.LastTransitionTime.Time},
		"a figure is new": {&was, 0, "False", "Progressing", "2/3", false, 700 * time.Millisecond,
			was.LastTransitionTime.Time},
		"a figure is new, and status or reason were often": {&was, time.Minute, "False", "Progressing", "2/3", false,
			time.Minute, was.LastTransitionTime.Time},
		"the reason is new": {&was, 0, "False", "ClusterAway", "1/3", true, 0, was.LastTransitionTime.Time},
		"the reason is new, as it was often": {&was, time.Minute, "False", "ClusterAway", "1/3", false, time.Minute,
			was.LastTransitionTime.Time},
		"the status is new": {&was, 0, "True", "Replicated", "3/3", true, 0, now},
		"a figure, after a while": {&appsv1.DeploymentCondition{Status: "False", Reason: "Progressing"}, 0, "False",
			"Progressing", "2/3", true, 0, time.Time{}},
	} {
		t.Run(name, func(t *testing.T) {
			next := appsv1.DeploymentCondition{Status: corev1.ConditionStatus(c.status), Reason: c.reason, Message: c.message}
			write, wait := update(c.old, &next, c.pause, now)
			if write != c.write || wait != c.wait || !next.LastTransitionTime.Time.Equal(c.transition) {
				t.Errorf("write %v, wait %s, transition %s", write, wait, next.LastTransitionTime)
			}
		})
	}
}

func TestACopyWhoseSlotLabelIsTakenOffIsRepairedAtOnce(t *testing.T) {
	stamped := func(d *appsv1.Deployment) { d.Labels[labelSlot] = "2a" }
	for name, c := range map[string]struct {
		cached, live func(*appsv1.Deployment)
		want         act
	}{
		"taken off":                 {stamped, func(*appsv1.Deployment) {}, actApply},
		"changed":                   {stamped, func(d *appsv1.Deployment) { d.Labels[labelSlot] = "00" }, actApply},
		"as it was: the cache lags": {stamped, stamped, actNone},
		"nobody stamps":             {func(*appsv1.Deployment) {}, func(*appsv1.Deployment) {}, actNone},
	} {
		t.Run(name, func(t *testing.T) {
			v := copyView{Want: mustWant(t, aSource(), nil), Source: "home/shop/web", SourceCluster: homeUID, Now: epoch}
			v.Note.seen(aCopy(t, c.cached))
			v.Note.seen(nil)
			v.Copy, v.Live, v.Cached = aCopy(t, c.live), true, ""
			step, err := decideCopy(v)
			if err != nil || step.Act != c.want {
				t.Errorf("act %v, %v, want %v", step.Act, err, c.want)
			}
		})
	}
}
