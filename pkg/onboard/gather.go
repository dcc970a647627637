package onboard

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-dev/tenure/pkg/clusterhealth"
	"github.com/tenure-dev/tenure/pkg/console"
	"github.com/tenure-dev/tenure/pkg/kubeconfig"
	"github.com/tenure-dev/tenure/shard/inspect"
	"github.com/tenure-dev/tenure/shard/keyspace"
)

// lookTimeout bounds one question to a workload cluster with the replicas' credentials.
const lookTimeout = 5 * time.Second

// inhabitantsTimeout bounds the search for inhabitants of a namespace: a cluster could answer each page of a list with
// a further one.
const inhabitantsTimeout = 5 * time.Minute

// Onboarder works on one cluster of a fleet, as the user who asks.
type Onboarder struct {
	// Home is the connection to the home cluster, Namespace that of the fleet there, and Fleet its name.
	Home      *rest.Config
	Namespace string
	Fleet     keyspace.Fleet
	// Name of the cluster.
	Name string
	// Workload is an admin's connection to the cluster; nil where a command does without.
	Workload *rest.Config
	// Progress is called with what is waited for. Nil disables it.
	Progress func(string)
}

func (o Onboarder) home() (client.Client, error) { return console.Connect(o.Home) }

func (o Onboarder) workload() (client.Client, error) { return console.Connect(o.Workload) }

func (o Onboarder) tell(format string, args ...any) {
	if o.Progress != nil {
		o.Progress(fmt.Sprintf(format, args...))
	}
}

// facts are what is known before a cluster is added.
type facts struct {
	now       time.Time
	target    target      // by the admin's connection
	unfit     *adminsOnly // why replicas can't reach the cluster as the admin does, nil if they can
	known     clusterSecrets
	access    Access // what the cluster is to be for
	want      []*unstructured.Unstructured
	atHome    string // the home cluster's UID, "" if it isn't known
	snapshot  console.Snapshot
	fleet     console.Fleet
	isHome    bool   // the cluster is some fleet's home
	missing   string // a namespace that the cluster lacks, "" if there is none
	unmanaged []string
	live      []*unstructured.Unstructured
	// failed says why some of it couldn't be read. Other facts may be the reason, and say more.
	failed struct{ atHome, records, isHome, namespaces, live error }
}

// gatherAdd reads what there is to know before the cluster is added.
func (o Onboarder) gatherAdd(ctx context.Context, home, there client.Client, a AddOptions) (f facts, err error) {
	if f.target, err = targetOf(o.Workload, a.Server); err != nil {
		if !errors.As(err, &f.unfit) || a.Server != "" {
			return f, err
		}
		f.target.Server = o.Workload.Host
	}
	if f.target.UID, err = o.identify(ctx, there); err != nil {
		return f, err
	}
	if f.known, err = o.readSecrets(ctx, home); err != nil {
		return f, err
	}
	if f.access, err = a.Wish.of(f.known.Own); err != nil {
		return f, err
	}
	if f.want, err = objectsFor(f.access); err != nil {
		return f, err
	}
	f.atHome, f.failed.atHome = uidOf(ctx, home)
	f.snapshot, f.fleet, f.failed.records = o.records(ctx, home, nil)
	f.isHome, f.failed.isHome = isHome(ctx, there)
	f.missing, f.failed.namespaces = missingNamespace(ctx, there, f.access.Namespaces)
	f.unmanaged = o.unmanaged(ctx, there, f.access.taken(f.known.Own))
	f.live, f.failed.live = readLive(ctx, there, f.want)
	f.now = time.Now()
	return f, nil
}

// readSecrets reads the Secrets of the fleet's clusters, and asks the cluster whether it takes the credentials in its
// own Secret.
func (o Onboarder) readSecrets(ctx context.Context, home client.Client) (clusterSecrets, error) {
	if err := home.Get(ctx, client.ObjectKey{Name: o.Namespace}, &corev1.Namespace{}); apierrors.IsNotFound(err) {
		return clusterSecrets{}, fmt.Errorf("there is no namespace %s at %s: --namespace names the one of the replicas, "+
			"--home-kubeconfig and --home-context the home cluster",
			o.Namespace, o.Home.Host)
	}
	all, err := kubeconfig.List(ctx, home, o.Namespace)
	if err != nil {
		return clusterSecrets{}, fmt.Errorf("listing the Secrets of clusters in namespace %s of the home cluster at %s "+
			"(--home-kubeconfig and --home-context say where it is): %w",
			o.Namespace, o.Home.Host, err)
	}
	k := clusterSecrets{Others: slices.DeleteFunc(all, func(s corev1.Secret) bool { return s.Name == o.Name })}
	own := &corev1.Secret{}
	err = home.Get(ctx, client.ObjectKey{Namespace: o.Namespace, Name: o.Name}, own)
	switch {
	case apierrors.IsNotFound(err):
		return k, nil
	case err != nil:
		return clusterSecrets{}, fmt.Errorf("reading Secret %s/%s: %w", o.Namespace, o.Name, err)
	}
	k.Own, k.Held = own, Hold(own)
	k.look(ctx, own)
	if ca, ok := authority(o.Workload); ok && k.Reason == clusterhealth.ReasonUnreachable {
		k.tryAuthority(ctx, ca)
	}
	if k.Reason == clusterhealth.ReasonRefused { // then only replicas may know whose they were
		if s, fleet, err := o.records(ctx, home, nil); err == nil {
			k.UID = displaced(fleet, s.Records.Layouts, o.Name, "")
		}
	}
	return k, nil
}

// look asks the cluster whether it takes the credentials in a Secret, and which one it is.
func (k *clusterSecrets) look(ctx context.Context, s *corev1.Secret) {
	var uid string
	if k.Reason, k.Note, uid = clusterhealth.Look(ctx, s, kubeconfig.Policy{}, lookTimeout); uid != "" {
		k.UID = uid
	}
}

// tryAuthority asks the server in the cluster's own Secret once more, verified by another CA, if the CA there doesn't
// verify it: the cluster may have got a new authority. The system's authorities, an empty ca, don't take the place of a
// cluster's own, since they vouch for many. Nor is anything tried with credentials other than a token, which a new
// kubeconfig wouldn't have.
func (k *clusterSecrets) tryAuthority(ctx context.Context, ca []byte) {
	held := k.Held
	if len(ca) == 0 || held.token == "" || !unverified(ctx, k.Own) {
		return
	}
	held.target.CA = ca
	text, err := held.target.kubeconfig(k.Own.Name, held.token)
	if err != nil {
		return
	}
	trial := k.Own.DeepCopy()
	fill(trial, text, false)
	anew := *k
	anew.look(ctx, trial)
	if anew.Reason != clusterhealth.ReasonUnreachable {
		*k, k.NewCA = anew, ca
	}
}

// unverified reports whether the server in a Secret shows a certificate that the CA there doesn't verify.
func unverified(ctx context.Context, s *corev1.Secret) bool {
	config, err := kubeconfig.Connection(s, kubeconfig.Policy{})
	if err != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	_, err = kubeconfig.Ask(ctx, config, true)
	refused := &tls.CertificateVerificationError{}
	return errors.As(err, &refused)
}

// uidOf returns the UID that distinguishes a cluster from all others.
func uidOf(ctx context.Context, c client.Client) (string, error) {
	system := &corev1.Namespace{}
	if err := c.Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, system); err != nil {
		return "", fmt.Errorf("reading namespace %s, whose UID tells clusters apart: %w", metav1.NamespaceSystem, err)
	}
	return string(system.UID), nil
}

// identify returns the UID of the workload cluster. This is the first request to it, so the error says how it was
// reached.
func (o Onboarder) identify(ctx context.Context, there client.Client) (string, error) {
	uid, err := uidOf(ctx, there)
	if err != nil {
		return "", fmt.Errorf("cluster %s at %s (--kubeconfig and --context say where it is): %w", o.Name,
			o.Workload.Host, err)
	}
	return uid, nil
}

// readLive reads what a workload cluster has of the objects that any access could need. By their label it also finds
// what add made there for other namespaces, or in a version that gave it another name. It doesn't look for namespaces
// and CustomResourceDefinitions of other names: deleting one would delete what is in it. Of what others made, it also
// finds the RoleBindings that give the fleet rights in other namespaces ([givesRights]).
func readLive(ctx context.Context, c client.Client,
	want []*unstructured.Unstructured) ([]*unstructured.Unstructured, error) {
	possible, err := objectsFor(Access{Roles: Roles})
	if err != nil {
		return nil, err
	}
	var found []*unstructured.Unstructured
	seen := map[id]bool{}
	for _, o := range append(possible, want...) {
		if seen[idOf(o)] {
			continue
		}
		seen[idOf(o)] = true
		there := &unstructured.Unstructured{}
		there.SetGroupVersionKind(o.GroupVersionKind())
		err := c.Get(ctx, client.ObjectKeyFromObject(o), there)
		switch {
		case err == nil:
			found = append(found, there)
		case meta.IsNoMatchError(err):
			return nil, fmt.Errorf("the cluster's API server has no %s of %s, which is needed: Tenure takes "+
				"Kubernetes 1.32 or later (docs/upgrade.md)", o.GetKind(), o.GetAPIVersion())
		case !apierrors.IsNotFound(err):
			return nil, fmt.Errorf("reading %s: %w", idOf(o), err)
		}
	}
	asked := map[schema.GroupVersionKind]bool{}
	for _, o := range possible {
		kind := o.GroupVersionKind()
		if asked[kind] || holds(o) {
			continue
		}
		asked[kind] = true
		var which []client.ListOption
		if o.GetKind() != kindBinding {
			which = append(which, client.MatchingLabels{madeByLabel: madeBy})
		}
		all := &unstructured.UnstructuredList{}
		all.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		if err := c.List(ctx, all, which...); err != nil {
			return nil, fmt.Errorf("listing the objects of kind %s of the whole cluster: %w", o.GetKind(), err)
		}
		for i := range all.Items {
			if o := &all.Items[i]; !seen[idOf(o)] && (ours(o) || givesRights(o)) {
				found = append(found, o)
			}
		}
	}
	return found, nil
}

// givesRights reports whether a RoleBinding, whoever made it, is one of those that give the fleet rights in a
// namespace.
func givesRights(o *unstructured.Unstructured) bool {
	if !bindings[o.GetName()].narrow {
		return false
	}
	subjects, _, _ := unstructured.NestedSlice(o.Object, "subjects")
	return slices.ContainsFunc(subjects, func(s any) bool {
		who, _ := s.(map[string]any)
		return who["kind"] == kindAccount && who["namespace"] == accountNamespace && who["name"] == accountName
	})
}

// missingNamespace returns the first of the namespaces that doesn't exist; "" if all do.
func missingNamespace(ctx context.Context, c client.Client, names []string) (string, error) {
	for _, name := range names {
		err := c.Get(ctx, client.ObjectKey{Name: name}, &corev1.Namespace{})
		switch {
		case apierrors.IsNotFound(err):
			return name, nil
		case err != nil:
			return "", fmt.Errorf("reading namespace %s: %w", name, err)
		}
	}
	return "", nil
}

// inhabitants lists what is in a namespace, some objects of each kind. It leaves out events, what Kubernetes puts into
// each namespace, what goes with the cluster, and what is being deleted.
func inhabitants(ctx context.Context, config *rest.Config, namespace string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, inhabitantsTimeout)
	defer cancel()
	config = rest.CopyConfig(config)
	config.WarningHandlerWithContext = rest.NoWarnings{} // of deprecated kinds, which are looked at, too
	kinds, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("asking for the kinds: %w", err)
	}
	lists, err := kinds.ServerPreferredNamespacedResourcesWithContext(ctx)
	if err != nil {
		return nil, fmt.Errorf("asking for the kinds that can be in namespace %s: %w", namespace, err)
	}
	objects, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("connecting: %w", err)
	}
	var names []string
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, fmt.Errorf("kinds of %s: %w", list.GroupVersion, err)
		}
		for _, kind := range list.APIResources {
			if strings.Contains(kind.Name, "/") || !slices.Contains(kind.Verbs, "list") || kind.Name == "events" {
				continue
			}
			found, err := foreign(ctx, objects.Resource(version.WithResource(kind.Name)).Namespace(namespace), kind.Name)
			if err != nil {
				return nil, fmt.Errorf("listing %s in namespace %s: %w", kind.Name, namespace, err)
			}
			names = append(names, found...)
		}
	}
	return names, nil
}

// foreign lists the inhabitants of one kind. It reads on until a page of the list has one.
func foreign(ctx context.Context, objects metadata.ResourceInterface, kind string) (names []string, err error) {
	page := metav1.ListOptions{Limit: 100}
	for {
		found, err := objects.List(ctx, page)
		if err != nil {
			return nil, err
		}
		for _, o := range found.Items {
			own := o.Labels[madeByLabel] == madeBy ||
				kind == "serviceaccounts" && (o.Name == "default" || o.Name == accountName) ||
				kind == "configmaps" && o.Name == "kube-root-ca.crt"
			if !own && o.DeletionTimestamp == nil {
				names = append(names, kind+"/"+o.Name)
			}
		}
		if page.Continue = found.Continue; len(names) > 0 || page.Continue == "" {
			return names, nil
		}
	}
}

// records reads the records of the fleet alone, not the Secrets and events of all clusters: enough for [serving], and
// little enough to be read again and again.
func (o Onboarder) records(ctx context.Context, home client.Reader, seen *console.Renewals) (console.Snapshot,
	console.Fleet, error) {
	records, err := inspect.Read(ctx, home, o.Namespace, o.Fleet)
	if err != nil {
		return console.Snapshot{}, console.Fleet{}, err
	}
	now := time.Now()
	s := console.Snapshot{
		Home: o.Home.Host, Namespace: o.Namespace, Now: now, Records: records, Seen: seen.See(records.Leases, now),
	}
	return s, console.Assess(s), nil
}

// snapshot reads the state of the fleet. With ask, the clusters are asked, too.
func (o Onboarder) snapshot(ctx context.Context, ask bool) (console.Snapshot, error) {
	return console.Gatherer{Home: o.Home, Namespace: o.Namespace, Fleet: o.Fleet, Ask: ask}.Snapshot(ctx)
}
