package console

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cnatv1alpha1 "github.com/tenure-dev/tenure/pkg/apis/cnat/v1alpha1"
	tenurev1alpha1 "github.com/tenure-dev/tenure/pkg/apis/tenure/v1alpha1"
	"github.com/tenure-dev/tenure/pkg/clusterhealth"
	"github.com/tenure-dev/tenure/pkg/kubeconfig"
	"github.com/tenure-dev/tenure/shard/inspect"
	"github.com/tenure-dev/tenure/shard/keyspace"
)

const (
	// askTimeout bounds the wait for one workload cluster. asksAtOnce is how many are asked at a time. asksWithin
	// bounds all of that, so that hundreds of clusters that don't answer leave time for the rest.
	askTimeout = 3 * time.Second
	asksAtOnce = 128
	asksWithin = 10 * time.Second
)

// Gatherer reads the input of judgements, with the rights of the caller.
type Gatherer struct {
	// Home is the connection to the home cluster.
	Home *rest.Config
	// Namespace of the records.
	Namespace string
	// Fleet is the one that the records belong to.
	Fleet keyspace.Fleet
	// Ask reports whether the workload clusters are asked if they can be used.
	Ask bool

	onlyCluster string // the only cluster to ask; "" for all
}

// Scheme returns a scheme that knows Kubernetes' own kinds and Tenure's.
func Scheme() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(s), tenurev1alpha1.AddToScheme(s),
		cnatv1alpha1.AddToScheme(s)); err != nil {
		return nil, fmt.Errorf("building the scheme: %w", err)
	}
	return s, nil
}

// Connect returns a client of a cluster that knows the kinds of [Scheme].
func Connect(config *rest.Config) (client.Client, error) {
	s, err := Scheme()
	if err != nil {
		return nil, err
	}
	c, err := client.New(config, client.Options{Scheme: s})
	switch {
	case err != nil && config.AuthProvider != nil:
		return nil, fmt.Errorf("connecting to %s: users[].user.auth-provider isn't supported: use exec, or a token: %w",
			config.Host, err)
	case err != nil:
		return nil, fmt.Errorf("connecting to %s: %w", config.Host, err)
	}
	return c, nil
}

// Snapshot reads the records, and asks the workload clusters.
func (g Gatherer) Snapshot(ctx context.Context) (Snapshot, error) {
	c, err := Connect(g.Home)
	if err != nil {
		return Snapshot{}, err
	}
	return g.snapshot(ctx, c)
}

func (g Gatherer) snapshot(ctx context.Context, home client.Client) (Snapshot, error) {
	s := Snapshot{Home: g.Home.Host, Namespace: g.Namespace}
	var err error
	if s.Records, err = inspect.Read(ctx, home, g.Namespace, g.Fleet); err != nil {
		return Snapshot{}, NotHome(g.Home.Host, err)
	}
	s.Now = time.Now() // before the clusters are asked, which may take long
	if err := g.lookAgain(ctx, home, &s); err != nil {
		return Snapshot{}, NotHome(g.Home.Host, err)
	}
	if err := home.Get(ctx, client.ObjectKey{Name: g.Namespace}, &corev1.Namespace{}); apierrors.IsNotFound(err) {
		return Snapshot{}, fmt.Errorf("there is no namespace %s at %s: --namespace names the one of the replicas",
			g.Namespace, g.Home.Host)
	}
	secrets, err := kubeconfig.List(ctx, home, g.Namespace)
	if err != nil {
		s.Unread = append(s.Unread, fmt.Sprintf("the kubeconfig Secrets (%s): clusters are known by their shards and by "+
			"what replicas say of them in events, and weren't asked from here", brief(err)))
		if s.Clusters, err = Reports(ctx, home, s); err != nil {
			s.Unread = append(s.Unread, fmt.Sprintf("events about clusters (%s): whether they can be used isn't known here",
				brief(err)))
		}
		return s, nil
	}
	// One that is being deleted is no cluster any more, though a finalizer may hold it for long.
	secrets = slices.DeleteFunc(secrets, func(s corev1.Secret) bool { return s.DeletionTimestamp != nil })
	s.Registered = true
	for i := range secrets {
		if _, err := kubeconfig.LimitsOf(&secrets[i], kubeconfig.Limits{}); err != nil {
			s.BadLimits = append(s.BadLimits, err.Error())
		}
	}
	g.judge(ctx, home, secrets, &s)
	return s, nil
}

// NotHome returns why the records of the cluster at host couldn't be read, more plainly if it has no such kind.
func NotHome(host string, err error) error {
	if !meta.IsNoMatchError(err) {
		return err
	}
	return fmt.Errorf("the cluster at %s has no kind Shard: it isn't the home cluster (see --home-kubeconfig and its "+
		"context), or config/crd isn't installed there", host)
}

// judge finds out whether each registered cluster can be used: by asking it, or by what replicas report if it can't
// be asked from here.
func (g Gatherer) judge(ctx context.Context, home client.Client, secrets []corev1.Secret, s *Snapshot) {
	var only map[string]types.UID
	s.Clusters, only = registered(secrets)
	if unasked := g.ask(ctx, secrets, s.Clusters, only); unasked > 0 {
		s.Unread = append(s.Unread, fmt.Sprintf("there was no time to ask %s whether they can be used",
			count(unasked, "cluster")))
	}
	said, err := complaints(ctx, home, g.Namespace, secrets, only, oldest(*s), s.Now)
	if err != nil {
		s.Unread = append(s.Unread, fmt.Sprintf("events about clusters (%s): whether those of --kubeconfig-folder, or that "+
			"need --kubeconfig-allow, can be used isn't known here", brief(err)))
	}
	s.addReports(said)
	var silent []string
	for _, a := range s.Clusters {
		if _, ok := only[string(a.Cluster)]; ok && a.Reason == "" {
			silent = append(silent, string(a.Cluster))
		}
	}
	if g.Ask && len(silent) > 0 && err == nil {
		s.Unread = append(s.Unread, fmt.Sprintf("whether %s can be used: that takes --kubeconfig-allow, which only replicas "+
			"have. None complains", list(silent, "")))
	}
}

// registered returns what Secrets say of their clusters. It asks no cluster. It also returns the UIDs of Secrets, by
// cluster, whose kubeconfigs need what only --kubeconfig-allow of the replicas can allow. A person's own machine
// doesn't do that to answer a question, so only replicas know whether they can be used.
func registered(secrets []corev1.Secret) (all []Answer, only map[string]types.UID) {
	all, only = make([]Answer, len(secrets)), map[string]types.UID{}
	for i := range secrets {
		a := &all[i]
		*a = Answer{Cluster: keyspace.ClusterName(secrets[i].Name), Since: secrets[i].CreationTimestamp.Time,
			Recorded: secrets[i].Annotations[kubeconfig.UIDAnnotation]}
		c, err := kubeconfig.Connection(&secrets[i], kubeconfig.Policy{})
		switch {
		case err == nil:
			a.Issued, _ = kubeconfig.TokenLife(c.BearerToken)
			a.Expires = kubeconfig.Expiry(c)
		case kubeconfig.Allowable(err):
			only[secrets[i].Name] = secrets[i].UID
		default:
			a.Reason, a.Note = clusterhealth.ReasonBadConfig, err.Error()
		}
	}
	return all, only
}

// ask asks those clusters that can be asked from here, a few at a time, and adds what they answer. unasked counts those
// for which there was no time. They have no reason then: a cluster isn't away because others are.
func (g Gatherer) ask(ctx context.Context, secrets []corev1.Secret, all []Answer,
	only map[string]types.UID) (unasked int) {
	if !g.Ask {
		return 0
	}
	ctx, cancel := context.WithTimeout(ctx, asksWithin)
	defer cancel()
	var group errgroup.Group
	group.SetLimit(asksAtOnce)
	var asked []*Answer
	for i := range secrets {
		a := &all[i]
		if _, ok := only[secrets[i].Name]; ok || a.Reason != "" || g.onlyCluster != "" && g.onlyCluster != secrets[i].Name {
			continue
		}
		asked = append(asked, a)
		group.Go(func() error {
			reason, note, uid := clusterhealth.Look(ctx, &secrets[i], kubeconfig.Policy{}, askTimeout)
			if ctx.Err() == nil || reason != clusterhealth.ReasonUnreachable {
				a.Reason, a.Note, a.UID = reason, note, uid
			}
			return nil
		})
	}
	_ = group.Wait()
	for _, a := range asked {
		if a.Reason == "" {
			unasked++
		}
	}
	return unasked
}

// Why reads the fleet and an object. workload is the connection to the object's cluster; nil means that of its
// kubeconfig Secret.
func (g Gatherer) Why(ctx context.Context, object Object, workload *rest.Config) (Question, error) {
	home, err := Connect(g.Home)
	if err != nil {
		return Question{}, err
	}
	q := Question{Object: object}
	if object.Kind == kindAt {
		g.onlyCluster = string(object.Cluster)
	}
	if q.Snapshot, err = g.snapshot(ctx, home); err != nil {
		return Question{}, err
	}
	if q.Object.Cluster, err = clusterOf(q.Snapshot, object); err != nil {
		return Question{}, err
	}
	given := workload != nil
	if !given {
		if workload, err = g.workload(ctx, home, q.Object.Cluster); err != nil {
			q.Unreadable = err.Error()
			return q, nil
		}
	}
	ctx, cancel := context.WithTimeout(ctx, 3*askTimeout) // discovery and one read
	defer cancel()
	workload = rest.CopyConfig(workload)
	workload.Timeout = askTimeout // discovery heeds no context
	kubeconfig.Bound(workload)
	c, err := Connect(workload)
	if err != nil {
		q.Unreadable = brief(err)
		return q, nil
	}
	if given {
		if q.Unreadable = q.elsewhere(ctx, c, workload.Host); q.Unreadable != "" {
			return q, nil
		}
	}
	if err := q.read(ctx, c); err != nil && !apierrors.IsNotFound(err) {
		q.Unreadable = brief(err)
	}
	switch {
	case q.Object.Cluster == kubeconfig.HomeName: // these aren't the replicas' credentials
		q.Barred = q.At != nil // replicas run no Ats there
	case !given && (q.At != nil || q.Deployment != nil):
		q.Barred = q.barred(ctx, c)
	}
	q.Read = time.Now()
	return q, nil
}

// elsewhere says that a connection leads to another cluster than the object's, by its layout; "" if it doesn't, or if
// that can't be told.
func (q *Question) elsewhere(ctx context.Context, c client.Client, host string) string {
	layouts := q.Snapshot.Records.Layouts
	i := slices.IndexFunc(layouts, func(l tenurev1alpha1.Shard) bool {
		return l.Spec.Cluster == string(q.Object.Cluster) && l.Spec.Layout.ClusterUID != ""
	})
	if i < 0 {
		return ""
	}
	system := &corev1.Namespace{}
	if err := c.Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, system); err != nil ||
		string(system.UID) == layouts[i].Spec.Layout.ClusterUID {
		return ""
	}
	return fmt.Sprintf("--kubeconfig leads to another cluster than %s, at %s: see its current-context", q.Object.Cluster,
		host)
}

// barred reports whether the credentials, which are the replicas', may not write what replicas write to the object: the
// status of an At, or a Deployment's list of copies.
func (q *Question) barred(ctx context.Context, c client.Client) bool {
	review := &authorizationv1.SelfSubjectAccessReview{}
	review.Spec.ResourceAttributes = &authorizationv1.ResourceAttributes{Verb: "update",
		Group: cnatv1alpha1.GroupVersion.Group, Resource: "ats", Subresource: "status", Namespace: q.Object.Namespace}
	if q.Deployment != nil {
		review.Spec.ResourceAttributes = &authorizationv1.ResourceAttributes{Verb: "patch",
			Group: appsv1.GroupName, Resource: "deployments", Namespace: q.Object.Namespace}
	}
	return c.Create(ctx, review) == nil && !review.Status.Allowed
}

// read reads the object, and an At's Pod.
func (q *Question) read(ctx context.Context, c client.Client) error {
	key := client.ObjectKey{Namespace: q.Object.Namespace, Name: q.Object.Name}
	if q.Object.Kind == kindDeployment {
		deployment := &appsv1.Deployment{}
		if err := c.Get(ctx, key, deployment); err != nil {
			return err
		}
		q.Deployment = deployment
		return nil
	}
	at := &cnatv1alpha1.At{}
	if err := c.Get(ctx, key, at); err != nil {
		return err
	}
	q.At = at
	if at.Status.PodName == "" {
		return nil
	}
	pod := &corev1.Pod{}
	err := c.Get(ctx, client.ObjectKey{Namespace: at.Namespace, Name: at.Status.PodName}, pod)
	if err == nil {
		q.Pod = pod
	}
	q.PodMissing = apierrors.IsNotFound(err) // after other errors, the answer says less
	return nil
}

// workload returns the connection that the replicas use.
func (g Gatherer) workload(ctx context.Context, home client.Client, name keyspace.ClusterName) (*rest.Config, error) {
	if name == kubeconfig.HomeName {
		return g.Home, nil
	}
	secret := &corev1.Secret{}
	if err := home.Get(ctx, client.ObjectKey{Namespace: g.Namespace, Name: string(name)}, secret); err != nil {
		return nil, fmt.Errorf("reading the kubeconfig Secret of cluster %s (or give --kubeconfig): %w", name, err)
	}
	config, err := kubeconfig.Connection(secret, kubeconfig.Policy{})
	if err != nil {
		return nil, fmt.Errorf("Secret of cluster %s can't be used from here (so give --kubeconfig): %w", name, err)
	}
	return config, nil
}

// clusterOf returns the cluster of an object: home for a Deployment whose cluster wasn't named.
func clusterOf(s Snapshot, object Object) (keyspace.ClusterName, error) {
	if object.Kind != kindDeployment || object.Cluster != "" {
		return theCluster(s, object.Cluster)
	}
	home, err := theCluster(s, kubeconfig.HomeName)
	if err != nil {
		err = errors.New("home isn't a cluster of this fleet: replicas copy its Deployments only with " +
			"--deployment-source=home; if they copy those of another cluster, name it by --cluster")
	}
	return home, err
}

// theCluster returns the cluster that is meant.
func theCluster(s Snapshot, wanted keyspace.ClusterName) (keyspace.ClusterName, error) {
	var names []string
	known := false
	for _, c := range Assess(s).Clusters {
		known = known || c.Name == wanted
		if !c.Removed { // records of a cluster that was removed stay
			names = append(names, string(c.Name))
		}
	}
	unread := ""
	if !s.Registered {
		unread = "; not read: " + strings.Join(s.Unread, "; ")
	}
	switch {
	case known:
		return wanted, nil
	case len(names) == 0 && !s.Registered:
		return "", fmt.Errorf("no cluster is known in namespace %s%s", s.Namespace, unread)
	case wanted != "" && len(names) > 0:
		return "", &UsageError{fmt.Sprintf("--cluster %s: no such cluster; there are: %s%s", wanted,
			strings.Join(names, ", "), unread)}
	case len(names) == 1:
		return keyspace.ClusterName(names[0]), nil
	case len(names) == 0:
		return "", fmt.Errorf("no cluster is registered in namespace %s: tenure cluster add NAME registers one; "+
			"--namespace and --fleet say whose clusters are meant", s.Namespace)
	}
	return "", &UsageError{"--cluster is needed; there are: " + strings.Join(names, ", ")}
}

// brief returns an error on one line.
func brief(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }
