package integration

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	cnatv1alpha1 "github.com/tenure-dev/tenure/pkg/apis/cnat/v1alpha1"
	"github.com/tenure-dev/tenure/test/lab"
	"github.com/tenure-dev/tenure/test/lab/labtest"
	"github.com/tenure-dev/tenure/test/lab/localplane"
	"github.com/tenure-dev/tenure/test/must"
)

// bookExample is as printed in Programming Kubernetes.
const bookExample = `apiVersion: cnat.programming-kubernetes.info/v1alpha1
kind: At
metadata:
  name: example-at
spec:
  schedule: "2019-04-12T10:12:00Z"
  command: "echo hello world!"
`

func TestAtAPI(t *testing.T) {
	plane := labtest.Planes(t, localplane.ClusterConfig{Name: "west"}).Cluster("west")
	must.Succeed(t, lab.InstallWorkload(t.Context(), plane))
	c := labtest.Client(t, plane)

	t.Run("the example of the book applies unchanged and is PENDING", func(t *testing.T) {
		if out, err := plane.Kubectl(t.Context(), bookExample, "apply", "--validate=strict", "-f", "-"); err != nil {
			t.Fatalf("applying: %v\n%s", err, out)
		}
		at := &cnatv1alpha1.At{}
		must.Succeed(t, c.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "example-at"}, at))
		if at.Status.Phase != cnatv1alpha1.AtPending || at.Spec.Image != "busybox" {
			t.Errorf("phase %q, image %q, want PENDING and busybox", at.Status.Phase, at.Spec.Image)
		}
		out, err := plane.Kubectl(t.Context(), "", "get", "at", "example-at")
		if err != nil || !strings.Contains(out, "PENDING") || !strings.Contains(out, "2019-04-12T10:12:00Z") {
			t.Errorf("kubectl get: %v\n%s", err, out)
		}
	})
	t.Run("bad input is refused", func(t *testing.T) { refusals(t, c) })
	t.Run("a started At is frozen and its status only goes forward", func(t *testing.T) { transitions(t, c) })
	t.Run("a started At may be updated by Go's types, however its quantities are spelled", func(t *testing.T) {
		spelledOtherwise(t, c)
	})
	t.Run("metadata that was applied is removed by the apply of a file without it", func(t *testing.T) {
		appliedMetadata(t, plane, c)
	})
	t.Run("an At stored before validation takes a status and a correction", func(t *testing.T) { storedBefore(t, c) })
}

func refusals(t *testing.T, c client.Client) {
	for i, r := range []struct{ fields, says string }{
		{`serviceAccountName: A_B`, "spec.serviceAccountName"},
		{`activeDeadlineSeconds: 0`, "spec.activeDeadlineSeconds"},
		{`image: busybox 1`, "spec.image"},
		{`resources: {limits: {` + strings.Repeat("x", 254) + `: "1"}}`, "spec.resources.limits"},
		{`resources: {requests: {cpu: "-1"}}`, "no quantity is negative"},
		{`resources: {requests: {cpus: "1"}}`, "a resource is cpu, memory"},
		{`resources: {requests: {example.com/gpu: "1"}}`, "needs a limit"},
		{`resources: {requests: {cpu: 1100m}, limits: {cpu: "1"}}`, "no request is above its limit"},
		{`resources: {requests: {example.com/gpu: "1"}, limits: {example.com/gpu: "2"}}`,
			"has a request that equals its limit"},
		{`resources: {requests: {hugepages-2Mi: 2Mi}, limits: {hugepages-2Mi: 4Mi}}`,
			"has a request that equals its limit"},
		{`resources: {limits: {example.com/gpu: 500m}}`, "has a whole number"},
		{`securityContext: {seccompProfile: {type: RuntimeDefault, localhostProfile: x}}`, "localhostProfile goes with"},
		{`securityContext: {seccompProfile: {type: Localhost, localhostProfile: /etc/profile.json}}`, "no part is '..'"},
		{`securityContext: {seccompProfile: {type: Localhost, localhostProfile: a/../../profile.json}}`,
			"no part is '..'"},
		{`securityContext: {capabilities: {add: [CAP_SYS_ADMIN]}}`, "without the prefix CAP_"},
		{`securityContext: {capabilities: {add: [` + strings.Repeat(`"", `, 65) + `]}}`,
			"spec.securityContext.capabilities.add"},
		{`securityContext: {runAsUser: 2147483648}`, "spec.securityContext.runAsUser"},
		{`securityContext: {runAsGroup: 2147483648}`, "spec.securityContext.runAsGroup"},
		{`securityContext: {privileged: true, allowPrivilegeEscalation: false}`,
			"allowPrivilegeEscalation must not be false"},
		{`securityContext: {runAsNonRoot: true, runAsUser: 0}`, "runAsNonRoot must not be true"},
		// no client could read these, nor a list that has one
		{`resources: {requests: {cpu: "1e1.5"}}`, "spec.resources.requests.cpu"},
		{`resources: {requests: {cpu: "1e999999999"}}`, "spec.resources.requests.cpu"},
		{`resources: {requests: {cpu: "1e-999999999"}}`, "spec.resources.requests.cpu"},
		{`ttlSecondsAfterFinished: 2147483648`, "spec.ttlSecondsAfterFinished"},
		{`ttlSecondsAfterFinished: 1.000000001`, "spec.ttlSecondsAfterFinished"},
		{`startingDeadlineSeconds: 1.000000001`, "spec.startingDeadlineSeconds"},
		{`activeDeadlineSeconds: 1.000000001`, "spec.activeDeadlineSeconds"},
		{`securityContext: {runAsUser: 1.000000001}`, "spec.securityContext.runAsUser"},
		{`securityContext: {runAsGroup: 1.000000001}`, "spec.securityContext.runAsGroup"},
		{`schedule: tomorrow`, "spec.schedule"},
		{`schedule: ""`, "spec.schedule"},
		{`schedule: "2019-04-12"`, "spec.schedule"},
		{`schedule: "2019-02-30T10:12:00Z"`, "must be a day and a time of day that exist"},
		{`schedule: "2019-04-12T10:12:60Z"`, "must be a day and a time of day that exist"},
		{`schedule: "2019-04-12T24:00:00Z"`, "spec.schedule"},
		{`schedule: "2026-01-01T09:00:00+99:00"`, "spec.schedule"},
		{`schedule: "2026-01-01T09:00:00Ztea"`, "spec.schedule"},
		{`schedule: "2030-01-01T10:12:00:5Z"`, "spec.schedule"},
		{`schedule: "2030-01-01T10:12:0012Z"`, "spec.schedule"},
		{`command: ""`, "spec.command"},
		{`command: ` + strings.Repeat("𝄞", 32768), "spec.command"}, // longer than an argument may be
	} {
		if err := c.Create(t.Context(), atWith(t, fmt.Sprint("refused-", i), r.fields)); err == nil ||
			!strings.Contains(err.Error(), r.says) {
			t.Errorf("%.100s: %v, want a refusal that says %q", r.fields, err, r.says)
		}
	}
	asPodsDo := atWith(t, "accepted", `
resources:
  requests: {example.com/gpu: 1, example.com/x: 1k, example.com/y: 1k, hugepages-2Mi: 4Mi, cpu: "1.5"}
  limits: {example.com/gpu: "1", example.com/x: "1000", example.com/y: 1000, hugepages-2Mi: "4194304", cpu: 2}
securityContext: {seccompProfile: {type: Localhost, localhostProfile: ..profiles/a..b/...}}`)
	if err := c.Create(t.Context(), asPodsDo, client.DryRunAll); err != nil {
		t.Errorf("what Pods may have is refused: %v", err)
	}
}

// atWith is an At whose spec has some fields, in YAML, beside a schedule and a command.
func atWith(t *testing.T, name, fields string) *unstructured.Unstructured {
	t.Helper()
	spec := map[string]any{"schedule": "2019-04-12T10:12:00Z", "command": "ls"}
	must.Succeed(t, yaml.Unmarshal([]byte(fields), &spec))
	at := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	at.SetGroupVersionKind(cnatv1alpha1.GroupVersion.WithKind("At"))
	at.SetNamespace("default")
	at.SetName(name)
	return at
}

// transitions changes one At, step by step.
func transitions(t *testing.T, c client.Client) {
	at := &cnatv1alpha1.At{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "steps"}}
	at.Spec.Schedule, at.Spec.Command = "2030-01-01T00:00:00Z", "ls"
	at.Spec.Resources = &cnatv1alpha1.AtResources{Limits: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}}
	must.Succeed(t, c.Create(t.Context(), at))
	for _, step := range []struct {
		name, patch string
		status      bool
		// refused is part of the message; empty: the step succeeds.
		refused string
	}{
		{name: "a PENDING spec may change", patch: `{"spec":{"command":"echo hi"}}`},
		{name: "PENDING to RUNNING", status: true, patch: `{"status":{"phase":"RUNNING","epoch":5}}`},
		{name: "the command is frozen", patch: `{"spec":{"command":"echo ho"}}`, refused: "immutable"},
		{name: "the schedule is frozen", patch: `{"spec":{"schedule":"2031-01-01T00:00:00Z"}}`, refused: "immutable"},
		{name: "the image is frozen", patch: `{"spec":{"image":"alpine"}}`, refused: "immutable"},
		{name: "the deadline is frozen", patch: `{"spec":{"startingDeadlineSeconds":3}}`, refused: "immutable"},
		{name: "the account is frozen", patch: `{"spec":{"serviceAccountName":"x"}}`, refused: "immutable"},
		{name: "the end is frozen", patch: `{"spec":{"activeDeadlineSeconds":3}}`, refused: "immutable"},
		{name: "the token is frozen", patch: `{"spec":{"automountServiceAccountToken":true}}`, refused: "immutable"},
		{name: "the token that it hasn't may be spelled out", patch: `{"spec":{"automountServiceAccountToken":false}}`},
		{name: "what it hasn't is frozen", patch: `{"spec":{"resources":{"requests":{"cpu":2}}}}`, refused: "immutable"},
		{name: "a limit is frozen", patch: `{"spec":{"resources":{"limits":{"cpu":3}}}}`, refused: "immutable"},
		{name: "a limit that it hasn't is frozen", patch: `{"spec":{"resources":{"limits":{"memory":1}}}}`,
			refused: "immutable"},
		{name: "a limit can't be removed", patch: `{"spec":{"resources":{"limits":{"cpu":null}}}}`, refused: "immutable"},
		{name: "limits can't be removed", patch: `{"spec":{"resources":{"limits":null}}}`, refused: "immutable"},
		{name: "resources can't be removed", patch: `{"spec":{"resources":null}}`, refused: "immutable"},
		{name: "a limit can't be replaced", patch: `{"spec":{"resources":{"limits":{"cpu":null,"memory":2}}}}`,
			refused: "immutable"},
		{name: "a limit may be spelled otherwise", patch: `{"spec":{"resources":{"limits":{"cpu":"2000m"}}}}`},
		{name: "the rights are frozen", patch: `{"spec":{"securityContext":{"privileged":true}}}`, refused: "immutable"},
		{name: "suspend and time to live may change", patch: `{"spec":{"suspend":true,"ttlSecondsAfterFinished":4}}`},
		{name: "the epoch doesn't fall", status: true, patch: `{"status":{"epoch":4}}`, refused: "epoch never falls"},
		{name: "the epoch can't be removed", status: true, patch: `{"status":{"epoch":null}}`, refused: "epoch never falls"},
		{name: "a time that replicas couldn't read", status: true,
			patch: `{"status":{"scheduledTime":"2026-01-01T00:00:00Z"}}`, refused: "scheduledTime"},
		{name: "a time in small letters", status: true,
			patch: `{"status":{"scheduledTime":"2026-01-01t00:00:00.000000Z"}}`, refused: "scheduledTime"},
		{name: "a condition's time in small letters", status: true, patch: `{"status":{"conditions":[{"type":"Blocked",` +
			`"status":"True","reason":"X","message":"","lastTransitionTime":"2026-01-01t00:00:00Z"}]}}`,
			refused: "lastTransitionTime"},
		{name: "a time", status: true, patch: `{"status":{"scheduledTime":"2026-01-01T00:00:00.000000Z"}}`},
		{name: "the status can't be removed", status: true, patch: `{"status":null}`, refused: "epoch never falls"},
		{name: "RUNNING doesn't go back", status: true, patch: `{"status":{"phase":"PENDING"}}`,
			refused: "phase only goes forward"},
		{name: "an unknown phase", status: true, patch: `{"status":{"phase":"LATE"}}`, refused: "Unsupported value"},
		{name: "the epoch may stay", status: true, patch: `{"status":{"epoch":5,"podName":"x"}}`},
		{name: "the epoch may rise", status: true, patch: `{"status":{"epoch":6}}`},
		{name: "RUNNING to DONE", status: true, patch: `{"status":{"phase":"DONE"}}`},
		{name: "DONE doesn't go back", status: true, patch: `{"status":{"phase":"RUNNING"}}`,
			refused: "phase only goes forward"},
	} {
		patch := client.RawPatch(types.MergePatchType, []byte(step.patch))
		var err error
		if step.status {
			err = c.Status().Patch(t.Context(), at, patch)
		} else {
			err = c.Patch(t.Context(), at, patch)
		}
		switch {
		case step.refused == "" && err != nil:
			t.Fatalf("%s: %v", step.name, err)
		case step.refused != "" && (err == nil || !strings.Contains(err.Error(), step.refused)):
			t.Fatalf("%s: %v, want a refusal that says %q", step.name, err, step.refused)
		}
	}
}

// spelledOtherwise updates Ats by Go's types, which spell quantities in their own way.
func spelledOtherwise(t *testing.T, c client.Client) {
	for i, resources := range []string{
		`{}`, `{requests: {}, limits: {}}`, `{limits: {cpu: 1}}`, `{limits: {cpu: 1000m, memory: 1024Ki}}`,
		`{requests: {cpu: ".5", example.com/x: 1e3}, limits: {cpu: 1, example.com/x: 1k}}`,
	} {
		created := atWith(t, fmt.Sprint("spelled-", i), "resources: "+resources)
		must.Succeed(t, c.Create(t.Context(), created))
		at := &cnatv1alpha1.At{}
		must.Succeed(t, c.Get(t.Context(), client.ObjectKeyFromObject(created), at))
		at.Status.Phase = cnatv1alpha1.AtRunning
		must.Succeed(t, c.Status().Update(t.Context(), at))
		at.Labels = map[string]string{"team": "a"}
		if err := c.Update(t.Context(), at); err != nil {
			t.Errorf("%s: %v", resources, err)
		}
	}
}

// storedBefore makes an At with a bad schedule by taking the CRD's validation away
// for a moment, as an older version of the CRD would have let it in.
func storedBefore(t *testing.T, c client.Client) {
	crd := &unstructured.Unstructured{}
	crd.SetAPIVersion("apiextensions.k8s.io/v1")
	crd.SetKind("CustomResourceDefinition")
	must.Succeed(t, c.Get(t.Context(), client.ObjectKey{Name: "ats.cnat.programming-kubernetes.info"}, crd))
	strict, _, err := unstructured.NestedSlice(crd.Object, "spec", "versions")
	must.Succeed(t, err)
	loose := crd.DeepCopy()
	versions, _, _ := unstructured.NestedSlice(loose.Object, "spec", "versions")
	for _, rule := range []string{"x-kubernetes-validations", "pattern"} {
		unstructured.RemoveNestedField(versions[0].(map[string]any), "schema", "openAPIV3Schema", "properties", "spec",
			"properties", "schedule", rule)
	}
	must.Succeed(t, unstructured.SetNestedSlice(loose.Object, versions, "spec", "versions"))
	must.Succeed(t, c.Update(t.Context(), loose))

	at := &cnatv1alpha1.At{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "old"}}
	at.Spec.Schedule, at.Spec.Command = "tomorrow", "ls"
	labtest.Until(t, "an At with a bad schedule is let in", func() bool { return c.Create(t.Context(), at) == nil })

	must.Succeed(t, unstructured.SetNestedSlice(loose.Object, strict, "spec", "versions"))
	must.Succeed(t, c.Update(t.Context(), loose))
	labtest.Until(t, "bad schedules are refused again", func() bool {
		probe := &cnatv1alpha1.At{ObjectMeta: metav1.ObjectMeta{Namespace: "default", GenerateName: "probe-"}, Spec: at.Spec}
		return apierrors.IsInvalid(c.Create(t.Context(), probe))
	})

	meta.SetStatusCondition(&at.Status.Conditions,
		metav1.Condition{Type: cnatv1alpha1.ConditionBlocked, Status: metav1.ConditionTrue, Reason: "InvalidSchedule"})
	if err := c.Status().Update(t.Context(), at); err != nil {
		t.Errorf("writing the condition: %v", err)
	}
	at.Spec.Schedule = "2030-01-01T00:00:00Z"
	at.Spec.StartingDeadlineSeconds = new(int64(1))
	if err := c.Update(t.Context(), at); err != nil {
		t.Errorf("correcting the schedule: %v", err)
	}
}

// appliedMetadata writes a status without labels, as replicas do, between two server-side applies. API servers before
// 1.36 take the label from its manager then; docs/upgrade.md has the way out.
func appliedMetadata(t *testing.T, plane *localplane.Plane, c client.Client) {
	const label = "  labels: {team: a}\n"
	apply := func(labels string) {
		t.Helper()
		file := strings.Replace(bookExample, "  name: example-at\n", "  name: applied\n"+labels, 1)
		if out, err := plane.Kubectl(t.Context(), file, "apply", "--server-side", "-f", "-"); err != nil {
			t.Fatalf("applying: %v\n%s", err, out)
		}
	}
	read := func() *cnatv1alpha1.At {
		t.Helper()
		there := &cnatv1alpha1.At{}
		must.Succeed(t, c.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "applied"}, there))
		return there
	}
	discover, err := discovery.NewDiscoveryClientForConfig(plane.RESTConfig())
	must.Succeed(t, err)
	version, err := discover.ServerVersion()
	must.Succeed(t, err)
	minor, err := strconv.Atoi(strings.TrimSuffix(version.Minor, "+"))
	must.Succeed(t, err)

	apply(label)
	sent := read()
	sent.Labels, sent.Status.Phase = nil, cnatv1alpha1.AtRunning
	must.Succeed(t, c.Status().Update(t.Context(), sent))
	if labels := read().Labels; labels["team"] != "a" {
		t.Fatalf("the write of a status leaves the labels %v", labels)
	}
	apply("")
	if _, there := read().Labels["team"]; there != (minor < 36) {
		t.Errorf("Kubernetes 1.%d: after an apply without it, the label is there: %v", minor, there)
	}
	apply(label)
	apply("")
	if labels := read().Labels; labels["team"] != "" {
		t.Errorf("after applying the old file once more, then the new one: %v", labels)
	}
}
