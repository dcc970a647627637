package integration

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-dev/tenure/pkg/replication"
	"github.com/tenure-dev/tenure/test/lab"
	"github.com/tenure-dev/tenure/test/lab/labtest"
	"github.com/tenure-dev/tenure/test/lab/localplane"
	"github.com/tenure-dev/tenure/test/must"
)

const (
	// edits is the role that Kubernetes' own role edit consists of. The controller that would aggregate it into
	// edit isn't running.
	edits = "system:aggregate-to-edit"
	// editor has that role in the namespace, and replicator has tenure-replicator as well.
	editor, replicator = "editor", "replicator"
	// deployer plays Kubernetes' own Deployment controller, and scaler its autoscaler.
	deployer = "system:serviceaccount:kube-system:deployment-controller"
	scaler   = "system:serviceaccount:kube-system:horizontal-pod-autoscaler"
)

// merge is a JSON merge patch of a Deployment, or of a subresource.
func merge(patch string, subresource ...string) func(*testing.T, client.Client, *appsv1.Deployment) error {
	return func(t *testing.T, c client.Client, d *appsv1.Deployment) error {
		raw := client.RawPatch(types.MergePatchType, []byte(patch))
		if len(subresource) > 0 {
			return c.SubResource(subresource[0]).Patch(t.Context(), d, raw)
		}
		return c.Patch(t.Context(), d, raw)
	}
}

// TestOnlyWhoMayReplicateSteersCopies sends, as several users, what could make a write happen in another cluster to a
// real API server that has what config/replication/source installs.
func TestOnlyWhoMayReplicateSteersCopies(t *testing.T) {
	t.Parallel()
	plane := labtest.Planes(t, localplane.ClusterConfig{Name: "home"}).Cluster("home")
	admin := labtest.Client(t, plane)
	as := func(user string) client.Client { return clientAs(t, plane, user) }
	ensure := func(o client.Object) {
		t.Helper()
		if err := admin.Create(t.Context(), o); client.IgnoreAlreadyExists(err) != nil {
			t.Fatal(err)
		}
	}
	ensure(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "tenure-system"}})
	ensure(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}})
	labtest.Kubectl(t, plane, "apply", "--validate=strict", "-k", "../../config/replication/source")
	for user, roles := range map[string][]string{editor: {edits},
		replicator: {edits, "tenure-replicator"}, scaler: {edits}} {
		for _, role := range roles {
			ensure(bound("shop", user, role))
		}
	}
	plain := func(d *appsv1.Deployment) { d.Labels, d.Annotations = nil, nil }
	steered := func(d *appsv1.Deployment) { d.Labels = nil }
	finalized := func(d *appsv1.Deployment) { plain(d); d.Finalizers = []string{replication.Finalizer} }
	copied := func(d *appsv1.Deployment) {
		d.Finalizers = []string{replication.Finalizer}
		d.Annotations[replication.AnnotationCopies] = "west"
	}
	ensure(deployment("shop", "probe"))
	replicas := 2
	labtest.Eventually(t, "the policies are in force, with their parameter", func() error {
		replicas++
		create := as(editor).Create(t.Context(), deployment("shop", "probe-2"), client.DryRunAll)
		scale := merge(fmt.Sprintf(`{"spec":{"replicas":%d}}`, replicas), "scale")(t, as(editor), deployment("shop", "probe"))
		if !refusedByPolicy(create) || !refusedByPolicy(scale) {
			return fmt.Errorf("create: %v; scale: %v", create, scale)
		}
		return nil
	})

	const own = lab.AccountUser
	create := func(t *testing.T, c client.Client, d *appsv1.Deployment) error { return c.Create(t.Context(), d) }
	remove := func(t *testing.T, c client.Client, d *appsv1.Deployment) error { return c.Delete(t.Context(), d) }
	all := func(t *testing.T, c client.Client, d *appsv1.Deployment) error {
		return c.DeleteAllOf(t.Context(), &appsv1.Deployment{}, client.InNamespace("shop"),
			client.MatchingFields{"metadata.name": d.Name})
	}
	rollOut := func(t *testing.T, c client.Client, d *appsv1.Deployment) error {
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(d), d); err != nil {
			return err
		}
		d.Annotations["deployment.kubernetes.io/revision"], d.Status.Replicas = "2", 2
		return c.Status().Update(t.Context(), d)
	}
	made := 0
	for name, c := range map[string]struct {
		before func(*appsv1.Deployment) // what there is; nil: nothing
		object func(*appsv1.Deployment) // what is created; nil: it is plain
		do     func(*testing.T, client.Client, *appsv1.Deployment) error
		may    []string
		mayNot []string
		late   bool // the policy's parameter takes a moment to come
	}{
		"create a plain one": {nil, plain, create, []string{editor, replicator}, nil, false},
		"create one with the label": {nil, func(*appsv1.Deployment) {}, create, []string{replicator},
			[]string{editor}, false},
		"create one with annotations only": {nil, steered, create, []string{replicator}, []string{editor}, false},
		"create one with the finalizer":    {nil, finalized, create, []string{replicator}, []string{editor}, false},
		"put on the label": {plain, nil, merge(`{"metadata":{"labels":{"tenure.dev/replicate":"true"}}}`),
			[]string{replicator}, []string{editor, own}, false},
		"put on the label, saying no": {plain, nil, merge(`{"metadata":{"labels":{"tenure.dev/replicate":"false"}}}`),
			[]string{replicator}, []string{editor}, false},
		"put on an annotation": {plain, nil,
			merge(`{"metadata":{"annotations":{"tenure.dev/overrides":"{}"}}}`), []string{replicator}, []string{editor}, false},
		"put on the finalizer": {plain, nil, merge(`{"metadata":{"finalizers":["tenure.dev/replication"]}}`),
			[]string{replicator, own}, []string{editor}, false},
		"change the image of a plain one": {plain, nil, merge(`{"spec":{"paused":true},"metadata":{"labels":{"a":"b"}}}`),
			[]string{editor, replicator}, nil, false},
		"change one that isn't copied yet": {steered, nil,
			merge(`{"spec":{"paused":true},"metadata":{"labels":{"a":"b"}}}`), []string{editor, replicator}, nil, false},
		"change how, before it is copied": {steered, nil,
			merge(`{"metadata":{"annotations":{"tenure.dev/clusters":"west"}}}`), []string{replicator},
			[]string{editor, own}, false},
		"change the spec of a copied one": {copied, nil, merge(`{"spec":{"paused":true}}`), []string{replicator},
			[]string{editor, own, scaler}, false},
		"change a label of a copied one": {copied, nil, merge(`{"metadata":{"labels":{"a":"b"}}}`), []string{replicator},
			[]string{editor, own}, false},
		"change an annotation of a copied": {copied, nil, merge(`{"metadata":{"annotations":{"a":"b"}}}`),
			[]string{replicator}, []string{editor, own}, false},
		"give a copied one an owner": {copied, nil,
			merge(`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"gone","uid":"x"}]}}`),
			[]string{replicator}, []string{editor, own}, false},
		"take the label off": {copied, nil, merge(`{"metadata":{"labels":{"tenure.dev/replicate":null}}}`),
			[]string{replicator}, []string{editor, own}, false},
		"change the list of copies": {copied, nil,
			merge(`{"metadata":{"annotations":{"tenure.dev/copies":"east"}}}`), []string{replicator, own},
			[]string{editor}, false},
		"remove list and finalizer": {copied, nil,
			merge(`{"metadata":{"finalizers":null,"annotations":{"tenure.dev/copies":null}}}`), []string{replicator, own},
			[]string{editor}, false},
		"with the list, change the spec": {copied, nil,
			merge(`{"metadata":{"annotations":{"tenure.dev/copies":null}},"spec":{"paused":true}}`), []string{replicator},
			[]string{editor, own}, false},
		"with the finalizer, take another": {func(d *appsv1.Deployment) {
			copied(d)
			d.Finalizers = append(d.Finalizers, "example.com/x")
		}, nil, merge(`{"metadata":{"finalizers":["tenure.dev/replication"]}}`), []string{replicator},
			[]string{editor, own}, false},
		"change nothing": {copied, nil, merge(`{"metadata":{"labels":{"tenure.dev/replicate":"true"}}}`),
			[]string{editor, replicator, own}, nil, false},
		"delete a copied one": {copied, nil, remove, []string{replicator}, []string{editor}, false},
		"delete all":          {copied, nil, all, []string{replicator}, []string{editor}, false},
		"delete a plain one":  {plain, nil, remove, []string{editor, replicator}, nil, false},
		"scale a copied one": {copied, nil, merge(`{"spec":{"replicas":5}}`, "scale"), []string{replicator},
			[]string{editor, scaler}, true},
		"scale a copied one to what it is": {copied, nil, merge(`{"spec":{"replicas":2}}`, "scale"),
			[]string{replicator, editor}, nil, false},
		"scale a plain one": {plain, nil, merge(`{"spec":{"replicas":5}}`, "scale"),
			[]string{replicator, editor, scaler}, nil, false},
		"write the condition": {copied, nil,
			merge(`{"status":{"conditions":[{"type":"Replicated","status":"True"}]}}`, "status"), []string{own}, nil, false},
		"write an annotation with the status": {copied, nil,
			merge(`{"metadata":{"annotations":{"tenure.dev/clusters":"evil"}}}`, "status"), nil, []string{own}, false},
		"roll out": {copied, nil, rollOut, []string{deployer}, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			try := func(user string) error {
				made++ // a policy's parameters come by a watch, so no name is used twice
				change := c.before
				if change == nil {
					change = c.object
				}
				d := deployment("shop", fmt.Sprint("web-", made), change)
				if c.before != nil {
					ensure(d.DeepCopy())
				}
				defer forceDelete(t, admin, d)
				if c.late {
					labtest.Until(t, "the policy's parameter has come", func() bool {
						return refusedByPolicy(c.do(t, client.NewDryRunClient(as(editor)), d.DeepCopy()))
					})
				}
				return c.do(t, as(user), d.DeepCopy())
			}
			for _, user := range c.may {
				if err := try(user); err != nil {
					t.Errorf("%s: %v", user, err)
				}
			}
			for _, user := range c.mayNot {
				if err := try(user); !refusedByPolicy(err) {
					t.Errorf("%s: %v, want the policy's refusal", user, err)
				}
			}
		})
	}
}

// clientAs returns a client for a user without special groups.
func clientAs(t *testing.T, plane *localplane.Plane, user string) client.Client {
	t.Helper()
	config := plane.RESTConfig()
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:authenticated"}}
	c, err := client.New(config, client.Options{Scheme: lab.Scheme()})
	must.Succeed(t, err)
	return c
}

// bound returns a binding that gives a user a role in a namespace.
func bound(namespace, user, role string) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: strings.ReplaceAll(user+"-"+role, ":", "-")},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}},
	}
}

// strangers lets the editor of a namespace at home try what might cause a write in another cluster, with one
// Deployment that another user has had copied, and with one that isn't copied. The other clusters' audit logs must
// show no write.
func strangers(t *testing.T, r *rig, namespace string) {
	r.create(t, "home", bound(namespace, editor, edits))
	theirs := deployment(namespace, "theirs", func(d *appsv1.Deployment) { d.Labels, d.Annotations = nil, nil })
	source := deployment(namespace, "web")
	r.create(t, "home", source)
	r.create(t, "home", theirs)
	r.replicated(t, source)
	c := clientAs(t, r.planes.Cluster("home"), editor)
	labtest.Until(t, "the editor may edit", func() bool {
		return merge(`{"spec":{"paused":true}}`)(t, c, theirs.DeepCopy()) == nil
	})
	before := r.get(t, "home", source)
	elsewhere := map[string]int{}
	for _, name := range []string{"west", "east"} {
		elsewhere[name] = len(r.writes(t, name, ""))
	}
	tries := map[string]error{
		"create": c.Create(t.Context(), deployment(namespace, "new")),
		"delete": c.Delete(t.Context(), source.DeepCopy()),
		"delete all": c.DeleteAllOf(t.Context(), &appsv1.Deployment{}, client.InNamespace(namespace),
			client.MatchingFields{"metadata.name": "web"}),
		"scale": merge(`{"spec":{"replicas":9}}`, "scale")(t, c, source.DeepCopy()),
		"apply": merge(`{"spec":{"template":{"spec":{"hostPID":true,"serviceAccountName":"admin"}}}}`)(t, c,
			source.DeepCopy()),
		"add clusters": merge(`{"metadata":{"annotations":{"tenure.dev/clusters":"west"}}}`)(t, c, source.DeepCopy()),
		"override": merge(
			`{"metadata":{"annotations":{"tenure.dev/overrides":"{\"west\":{\"images\":{\"web\":\"evil\"}}}"}}}`)(t, c,
			source.DeepCopy()),
		"divide": merge(`{"metadata":{"annotations":{"tenure.dev/replicas":"divide","tenure.dev/total":"99"}}}`)(t, c,
			source.DeepCopy()),
		"give up":    merge(`{"metadata":{"annotations":{"tenure.dev/given-up":"west"}}}`)(t, c, source.DeepCopy()),
		"unlist":     merge(`{"metadata":{"annotations":{"tenure.dev/copies":null}}}`)(t, c, source.DeepCopy()),
		"unlabel":    merge(`{"metadata":{"labels":{"tenure.dev/replicate":null}}}`)(t, c, source.DeepCopy()),
		"unfinalize": merge(`{"metadata":{"finalizers":null}}`)(t, c, source.DeepCopy()),
		"be collected": merge(`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"gone","uid":"x"}]}}`)(
			t, c, source.DeepCopy()),
		"label": merge(
			`{"metadata":{"labels":{"tenure.dev/replicate":"true"},"annotations":{"tenure.dev/clusters":"*"}}}`)(t, c,
			theirs.DeepCopy()),
		"finalize": merge(`{"metadata":{"finalizers":["tenure.dev/replication"]}}`)(t, c, theirs.DeepCopy()),
		"a forged list": merge(
			`{"metadata":{"annotations":{"tenure.dev/copies":"west,east"},"finalizers":["tenure.dev/replication"]}}`)(t, c,
			theirs.DeepCopy()),
	}
	for what, err := range tries {
		if !refusedByPolicy(err) {
			t.Errorf("%s: %v, want the policy's refusal", what, err)
		}
	}
	looked := reconciled(t, 1)
	r.setDown("nobody", true) // every source is looked at again
	looked()
	after := r.get(t, "home", source)
	if after == nil || after.ResourceVersion != before.ResourceVersion {
		t.Errorf("the source has changed: %v", after)
	}
	for name, n := range elsewhere {
		if writes := r.writes(t, name, ""); len(writes) != n {
			t.Errorf("written in %s: %v", name, writes[n:])
		}
	}
}

// byNamespace has the rights to write bound in one namespace only, in the cluster of the source and in those of copies.
func byNamespace(t *testing.T, r *rig) {
	const namespace = "by-namespace"
	r.namespaced(t, "home", namespace, "west", "east")
	for cluster, role := range map[string]string{"home": "tenure-replication-source", "west": "tenure-copies",
		"east": "tenure-copies"} {
		r.create(t, cluster, bound(namespace, lab.AccountUser, role))
		for _, role := range []string{"tenure-replication-source", "tenure-copies"} { // the rig has both in each cluster
			everywhere := &rbacv1.ClusterRoleBinding{}
			must.Succeed(t, r.client[cluster].Get(t.Context(), client.ObjectKey{Name: role}, everywhere))
			must.Succeed(t, r.client[cluster].Delete(t.Context(), everywhere))
			everywhere.ResourceVersion = ""
			defer r.create(t, cluster, everywhere)
		}
		labtest.Eventually(t, "it may write in its namespace only", func() error {
			patches := func(in string, want bool) error {
				return labtest.Allowed(t.Context(), r.client[cluster], want, lab.AccountUser, "patch", "deployments.apps", in)
			}
			return errors.Join(patches(namespace, true), patches("default", false))
		})
	}
	stop, err := r.start(process{source: "home", grace: time.Minute, namespace: namespace})
	must.Succeed(t, err)
	defer func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	}()
	source := deployment(namespace, "web")
	r.create(t, "home", source)
	r.replicated(t, source)
	r.edit(t, "home", "kubectl", source, imageTo("web:2"))
	r.runs(t, "west", source, "web:2")
	must.Succeed(t, r.client["home"].Delete(t.Context(), source))
	labtest.Until(t, "all is cleaned up", func() bool {
		return r.get(t, "home", source) == nil && r.get(t, "west", source) == nil && r.get(t, "east", source) == nil
	})
}

// refusedByPolicy reports whether a request was refused by one of our policies, and not because another right was
// missing.
func refusedByPolicy(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "ClusterRole tenure-replicator")
}

func forceDelete(t *testing.T, c client.Client, d *appsv1.Deployment) {
	t.Helper()
	if err := c.Delete(t.Context(), d.DeepCopy()); client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	_ = merge(`{"metadata":{"finalizers":null}}`)(t, c, d.DeepCopy()) // there may be none left
}
