package integration

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-dev/tenure/pkg/replication"
	"github.com/tenure-dev/tenure/test/lab/labtest"
	"github.com/tenure-dev/tenure/test/must"
)

// policy sets progressDeadlineSeconds of every Deployment named "mutated" and annotates it, whoever writes it.
const policy = `
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata:
  name: mutate
spec:
  failurePolicy: Fail
  reinvocationPolicy: Never
  matchConstraints:
    resourceRules:
      - {apiGroups: [apps], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [deployments]}
  matchConditions:
    - {name: named, expression: object.metadata.name == "mutated"}
  mutations:
    - patchType: ApplyConfiguration
      applyConfiguration:
        expression: >-
          Object{metadata: Object.metadata{annotations: {"injected": "yes"}}, spec: Object.spec{progressDeadlineSeconds: 333}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata:
  name: mutate
spec:
  policyName: mutate
`

func mutatingPolicy(t *testing.T, r *rig, namespace string) {
	if out, err := r.planes.Cluster("west").Kubectl(t.Context(), policy, "apply", "-f", "-"); err != nil {
		t.Fatalf("installing the policy: %v\n%s", err, out)
	}
	source := deployment(namespace, "mutated")
	// A policy takes a moment until it is in force; a throw-away Deployment shows when.
	probe := deployment(namespace, "mutated", func(d *appsv1.Deployment) { d.Labels, d.Annotations = nil, nil })
	labtest.Until(t, "the policy is in force", func() bool {
		o := probe.DeepCopy()
		return r.client["west"].Create(t.Context(), o, client.DryRunAll) == nil && o.Annotations["injected"] == "yes"
	})
	r.create(t, "home", source)
	r.shows(t, source, replication.ReasonContested, "progressDeadlineSeconds")
	time.Sleep(5 * time.Second)
	writes := r.writes(t, "west", namespace)
	if len(writes) > 6 {
		t.Errorf("%d writes in 5 s: %v", len(writes), writes)
	}
	if !r.eventSeen(t, source, replication.ReasonContested) {
		t.Error("no event tells of it")
	}
	r.edit(t, "home", "kubectl", source, func(d *appsv1.Deployment) {
		d.Spec.ProgressDeadlineSeconds = new(int32(333))
	})
	r.replicated(t, source)
	if got := r.get(t, "west", source).Annotations["injected"]; got != "yes" {
		t.Errorf("the policy's annotation is %q", got)
	}
}

func frozen(t *testing.T, r *rig, namespace string) {
	source, other := deployment(namespace, "web"), deployment(namespace, "other")
	r.create(t, "home", source)
	r.create(t, "home", other)
	r.replicated(t, source)
	r.replicated(t, other)
	west := r.planes.Cluster("west")
	must.Succeed(t, west.Pause())
	resume := func() {
		if err := west.Resume(); err != nil {
			t.Error(err)
		}
	}
	defer resume()
	began := time.Now()
	r.edit(t, "home", "kubectl", source, imageTo("web:2"))
	r.runs(t, "east", source, "web:2")
	if took := time.Since(began); took >= targetTimeout {
		t.Errorf("east waited %s for west", took)
	}
	r.shows(t, source, replication.ReasonAway, "")
	r.setDown("west", true)
	must.Succeed(t, r.client["east"].Delete(t.Context(), r.get(t, "east", other)))
	labtest.Until(t, "east is repaired meanwhile", func() bool { return r.get(t, "east", other) != nil })
	resume()
	r.setDown("west", false)
	r.runs(t, "west", source, "web:2") // it catches up
	r.replicated(t, source)
	r.replicated(t, other)
}

func divided(t *testing.T, r *rig, namespace string) {
	source := deployment(namespace, "web", with(replication.AnnotationReplicas, "divide"),
		with(replication.AnnotationTotal, "8"),
		with(replication.AnnotationWeights, "west=3,east=1"))
	r.create(t, "home", source)
	r.replicated(t, source)
	shares := func(west, east int32) func() bool {
		return func() bool {
			return *r.get(t, "west", source).Spec.Replicas == west && *r.get(t, "east", source).Spec.Replicas == east
		}
	}
	if !shares(6, 2)() {
		t.Fatal("not divided 6 to 2")
	}
	began := time.Now()
	r.setDown("west", true)
	labtest.Until(t, "the share has moved", shares(6, 8))
	if took := time.Since(began); took < 4*time.Second || took > 30*time.Second {
		t.Errorf("it moved after %s, the grace is 4 s", took)
	}
	r.setDown("west", false)
	labtest.Until(t, "the share is back", shares(6, 2))
	r.replicated(t, source)
}

// besideController has its source where a Deployment controller works on it, too, and writes conditions of its own.
func besideController(t *testing.T, r *rig) {
	r.run(t, "west", time.Minute)
	r.namespaced(t, "west", "beside", "east")
	source := deployment("beside", "web", with(replication.AnnotationClusters, "east"))
	r.create(t, "west", source)
	all := func() bool {
		d := r.get(t, "west", source)
		replicated := labtest.Condition(d, replication.ConditionReplicated)
		return replicated.Status == corev1.ConditionTrue &&
			strings.HasPrefix(replicated.Message, fmt.Sprintf("generation %d:", d.Generation)) &&
			labtest.Condition(d, appsv1.DeploymentAvailable).Status == corev1.ConditionTrue &&
			labtest.Condition(d, appsv1.DeploymentProgressing).Reason == "NewReplicaSetAvailable"
	}
	labtest.Until(t, "all three conditions are there", all)
	for _, image := range []string{"web:2", "web:3"} {
		r.edit(t, "west", "kubectl", source, imageTo(image))
		labtest.Until(t, "they are there again after "+image, func() bool {
			d := r.get(t, "west", source)
			return all() && d.Status.ObservedGeneration == d.Generation && d.Status.UpdatedReplicas == 2 &&
				imageOf(r.get(t, "east", source)) == image
		})
	}
	data, err := json.Marshal(r.get(t, "west", source).Status.Conditions)
	t.Logf("%s %v", data, err)
	before := len(r.writes(t, "west", "beside"))
	time.Sleep(2 * time.Second)
	if after := r.writes(t, "west", "beside"); len(after) != before {
		t.Errorf("written though nothing had changed: %v", after[before:])
	}
}
