package onboard

import (
	"context"
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/discovery"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	cnatv1alpha1 "github.com/tenure-dev/tenure/pkg/apis/cnat/v1alpha1"
	"github.com/tenure-dev/tenure/pkg/clusterhealth"
	"github.com/tenure-dev/tenure/pkg/console"
	"github.com/tenure-dev/tenure/pkg/kubeconfig"
	"github.com/tenure-dev/tenure/pkg/replication"
	"github.com/tenure-dev/tenure/shard"
)

const (
	// fieldManager owns what is applied to workload clusters.
	fieldManager = "tenure-cluster-add"
	// servedWithin bounds the wait for an API server to serve a new kind.
	servedWithin = 30 * time.Second
	// pollFirst and pollMost bound the pause between two polls.
	pollFirst, pollMost = 100 * time.Millisecond, 2 * time.Second
	// judgedWithin is how long a replica takes to say that it can't use a changed Secret: it asks the new server, and then
	// the one before.
	judgedWithin = 2 * lookTimeout
)

// carryOut makes the steps, and stops at the first failure: the next run continues from there. It returns the steps
// that it has made.
func carryOut(ctx context.Context, c client.Client, steps []step) (made []step, err error) {
	for i, s := range steps {
		switch s.Action {
		case created:
			err = c.Apply(ctx, client.ApplyConfigurationFromUnstructured(s.Object), client.FieldOwner(fieldManager),
				client.ForceOwnership)
		case updated: // to apply it would leave what another manager has added
			err = c.Update(ctx, s.Object, client.FieldOwner(fieldManager))
		case deleted:
			err = client.IgnoreNotFound(c.Delete(ctx, s.Object, client.Preconditions{UID: new(s.Object.GetUID())}))
		}
		if err != nil {
			return steps[:i], fmt.Errorf("%s: it couldn't be %s: %w", idOf(s.Object), s.Action, err)
		}
	}
	return steps, nil
}

// awaitAPI waits until the API server serves Ats, and has published their schema, which [Onboarder.Check] reads.
func awaitAPI(ctx context.Context, config *rest.Config) error {
	kinds, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return fmt.Errorf("asking for the kinds: %w", err)
	}
	return poll(ctx, servedWithin, func() (bool, error) {
		_, err := kinds.ServerResourcesForGroupVersionWithContext(ctx, cnatv1alpha1.GroupVersion.String())
		if err != nil {
			return false, fmt.Errorf("the API server doesn't serve %s yet: see the conditions of CustomResourceDefinition "+
				"ats.%s: %w", cnatv1alpha1.GroupVersion, cnatv1alpha1.GroupVersion.Group, err)
		}
		_, err = schemaOfAts(ctx, kinds)
		return err == nil, err
	})
}

// poll asks until the answer is yes, with growing pauses. When the time is over, it returns the error of the last
// answer, too.
func poll(ctx context.Context, within time.Duration, ask func() (bool, error)) error {
	over := time.NewTimer(within)
	defer over.Stop()
	for pause := pollFirst; ; pause = min(pause*3/2, pollMost) {
		done, err := ask()
		if done {
			return err
		}
		select {
		case <-over.C:
			return errors.Join(err, fmt.Errorf("waited for %s", span(within)))
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		case <-time.After(pause):
		}
	}
}

// requestToken asks for a token of the replicas' service account.
func requestToken(ctx context.Context, config *rest.Config,
	lifetime time.Duration) (token string, expires time.Time, err error) {
	connection, err := rest.HTTPClientFor(config)
	if err != nil {
		return "", time.Time{}, fmt.Errorf("connecting to %s: %w", config.Host, err)
	}
	if config.Proxy != nil { // client-go shares no connections through a proxy: they would stay open
		defer utilnet.CloseIdleConnectionsFor(connection.Transport)
	}
	c, err := corev1client.NewForConfigAndClient(config, connection)
	if err != nil {
		return "", time.Time{}, fmt.Errorf("connecting to %s: %w", config.Host, err)
	}
	request := &authenticationv1.TokenRequest{}
	request.Spec.ExpirationSeconds = new(int64(lifetime / time.Second))
	request, err = c.ServiceAccounts(accountNamespace).CreateToken(ctx, accountName, request, metav1.CreateOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return "", time.Time{}, fmt.Errorf("there is no service account %s/%s: tenure cluster add makes it",
			accountNamespace, accountName)
	case err != nil:
		return "", time.Time{}, fmt.Errorf("requesting a token of service account %s/%s: %w",
			accountNamespace, accountName, err)
	}
	return request.Status.Token, request.Status.ExpirationTimestamp.UTC(), nil
}

// granted describes when a token expires. The note is for a lifetime other than the one that was asked for. issued is
// when the token was, by the clock that says when it expires: the caller's may differ.
func granted(asked time.Duration, expires, issued time.Time) (text, note string) {
	got := expires.Sub(issued)
	if off := asked - got; off > time.Minute || off < -time.Minute {
		note = fmt.Sprintf("asked for a token for %s, the API server granted %s: it decides "+
			"(--service-account-max-token-expiration there)",
			span(asked), span(got.Round(time.Minute)))
	} else {
		got = asked // the rest is the time that the request took
	}
	return fmt.Sprintf("expires %s, in %s", stamp(expires), span(got.Round(time.Second))), note
}

// span formats a duration in whole seconds and without its zeros: 720h, not 720h0m0s.
func span(d time.Duration) string {
	d = d.Round(time.Second)
	switch {
	case d < time.Minute:
		return d.String()
	case d%time.Hour == 0:
		return fmt.Sprintf("%dh", d/time.Hour)
	case d > time.Hour:
		return fmt.Sprintf("%dh%02dm", d/time.Hour, d%time.Hour/time.Minute)
	case d%time.Minute == 0:
		return fmt.Sprintf("%dm", d/time.Minute)
	}
	return d.String()
}

// renewSecret asks for a new token and writes it into the cluster's Secret.
func (o Onboarder) renewSecret(ctx context.Context, home client.Client, secret *corev1.Secret, t target,
	lifetime time.Duration, r *Report) error {
	asked := time.Now()
	token, expires, err := requestToken(ctx, o.Workload, lifetime)
	if err != nil {
		return fmt.Errorf("cluster %s: %w", o.Name, err)
	}
	issued, _ := kubeconfig.TokenLife(token)
	if issued.IsZero() {
		issued = asked
	}
	text, note := granted(lifetime, expires, issued)
	r.line(o.Name, "token", "%s", text)
	r.note(note)
	return o.writeSecret(ctx, home, secret, t, token, true, r)
}

// writeSecret writes the cluster's Secret with a new kubeconfig, unless the Secret was changed meanwhile. byUs says
// that the token was requested here. The cluster is asked first whether it takes the credentials. If it can't be
// reached from here, that is only noted, since replicas may reach it.
func (o Onboarder) writeSecret(ctx context.Context, home client.Client, secret *corev1.Secret, t target, token string,
	byUs bool, r *Report) error {
	text, err := t.kubeconfig(o.Name, token)
	if err != nil {
		return err
	}
	fill(secret, text, byUs)
	switch reason, said := clusterhealth.Prove(ctx, secret, kubeconfig.Policy{}, lookTimeout); reason {
	case clusterhealth.ReasonUsable:
	case clusterhealth.ReasonUnreachable:
		r.note("its server can't be reached from here with the new credentials: " + said)
	default:
		return fmt.Errorf("the new credentials can't be used, so they weren't written: %s: %s", reason, said)
	}
	if secret.ResourceVersion == "" {
		err = home.Create(ctx, secret)
	} else {
		err = home.Update(ctx, secret)
	}
	if err != nil {
		return fmt.Errorf("writing Secret %s/%s: %w", secret.Namespace, secret.Name, err)
	}
	return nil
}

// awaitService waits until the fleet serves the cluster. If there was a Secret before, or replicas held shards of the
// cluster without one, they may serve it by what they had, and complain of the Secret that is there now: so it waits
// until no complaint is left. Without a Secret before, the right to read complaints isn't needed. If the Secret leads
// them there in another way now, it waits at least until they would have complained, or half of within if that is less.
func (o Onboarder) awaitService(ctx context.Context, home client.Client, within time.Duration,
	p intent) (Service, error) {
	a := &arrival{o: o, home: home, p: p, within: within, began: time.Now(), seen: &console.Renewals{}}
	if p.moved() {
		a.least = min(judgedWithin, within/2)
	}
	if err := poll(ctx, within, func() (bool, error) { return a.look(ctx) }); err != nil {
		return a.service, a.failed(ctx, err)
	}
	return a.service, nil
}

// arrival is the wait until the fleet serves a cluster.
type arrival struct {
	o             Onboarder
	home          client.Client
	p             intent
	began         time.Time
	within, least time.Duration
	seen          *console.Renewals

	read     bool             // whether the fleet could be read
	snapshot console.Snapshot // its records, as they were last read
	fleet    console.Fleet    // what they say
	service  Service          // how that fleet served the cluster
	refusal  string           // what replicas say against the Secret
	told     bool             // whether it was said what is waited for
}

// look reports whether the fleet serves the cluster by now.
func (a *arrival) look(ctx context.Context) (bool, error) {
	snapshot, fleet, err := a.o.records(ctx, a.home, a.seen)
	if err != nil {
		return !a.read && apierrors.IsForbidden(err), err // without the right to look, waiting is of no use
	}
	a.snapshot, a.fleet, a.read, a.service = snapshot, fleet, true, serving(fleet, a.o.Name)
	if !a.service.Complete {
		a.tell("waiting up to %s for the replicas to serve cluster %s (%d alive)", span(a.within), a.o.Name, a.service.Live)
		return false, nil
	}
	if a.p.known.Own != nil || a.p.taken {
		secret, said := &corev1.Secret{}, []console.Answer(nil)
		key := client.ObjectKey{Namespace: a.o.Namespace, Name: a.o.Name}
		if err = a.home.Get(ctx, key, secret); err == nil {
			said, err = console.ReportsAbout(ctx, a.home, snapshot, secret)
		}
		switch {
		case apierrors.IsForbidden(err) && a.p.known.Own == nil:
			a.service.Doubt = "replicas held shards of the cluster before; whether they can use its Secret isn't known: " +
				err.Error()
			return true, nil
		case err != nil:
			return apierrors.IsForbidden(err), fmt.Errorf("reading what replicas say of its Secret: %w", err)
		}
		if a.refusal = complaint(said, a.o.Name); a.refusal != "" {
			a.tell("waiting up to %s for the replicas to use the Secret of cluster %s%s", span(a.within), a.o.Name, a.refusal)
		}
	}
	return a.refusal == "" && time.Since(a.began) >= a.least, nil
}

// tell says once what is waited for.
func (a *arrival) tell(format string, args ...any) {
	if !a.told {
		a.told = true
		a.o.tell(format, args...)
	}
}

// failed returns the error of a wait that ended with one.
func (a *arrival) failed(ctx context.Context, err error) error {
	name := a.o.Name
	switch {
	case !a.read:
		return fmt.Errorf("cluster %s is registered; whether it is served isn't known, since the fleet can't be read: %w",
			name, err)
	case a.service.Complete && a.refusal != "":
		return fmt.Errorf("cluster %s is registered, but replicas can't use its Secret as it is%s: correct the address by "+
			"--server, or the kubeconfig, and run this again (%w)", name, a.refusal, err)
	case a.service.Complete:
		return fmt.Errorf("cluster %s is registered, and served, but maybe by the connection from before: %w", name, err)
	}
	said, unread := console.Reports(context.WithoutCancel(ctx), a.home, a.snapshot)
	if unread != nil {
		said = nil // the error then says less
	}
	err = fmt.Errorf("cluster %s is registered, but not served: %s (%w)", name, obstacle(a.fleet, name, said), err)
	if a.service.Live == 0 {
		err = fmt.Errorf("%w; if it is the wrong namespace, tenure cluster remove %s --namespace %s, without "+
			"--kubeconfig, takes it back", err, name, a.o.Namespace)
	}
	return err
}

// awaitRelease waits until no replica that may be alive holds a shard of the cluster, or can claim one: if the Secret
// was deleted just now, replicas serve the cluster until their grace is over, so it waits at least for the default
// grace, or half of within if that is less. With within 0 it looks once.
func (o Onboarder) awaitRelease(ctx context.Context, home client.Client, within time.Duration,
	deleted bool) (Service, error) {
	var s Service
	began, least := time.Now(), time.Duration(0)
	if deleted {
		least = min(shard.DefaultRemovalGrace, within/2)
	}
	read, told, seen := false, false, &console.Renewals{}
	err := poll(ctx, within, func() (bool, error) {
		_, fleet, err := o.records(ctx, home, seen)
		if err != nil {
			return !read && apierrors.IsForbidden(err), err
		}
		read = true
		s = serving(fleet, o.Name)
		if settled := s.Live == 0 || time.Since(began) >= least; s.Taken == 0 && settled || within <= 0 {
			return true, nil
		}
		if !told {
			told = true
			o.tell("waiting up to %s for the replicas to let go of cluster %s (%s)", span(within), o.Name, s)
		}
		return false, nil
	})
	switch {
	case err == nil:
	case !read:
		err = fmt.Errorf("cluster %s has no Secret now; whether replicas still hold shards of it isn't known, since the "+
			"fleet can't be read: %w", o.Name, err)
	case s.Held == 0:
		err = fmt.Errorf("cluster %s has no Secret now, but its shards are recorded as held by replicas that don't renew "+
			"their Leases, and no replica declares them dead: see whether any runs (tenure status). One that starts does so; "+
			"run this again then (%w)", o.Name, err)
	default:
		err = fmt.Errorf("cluster %s has no Secret now, but as far as is known replicas still hold shards of it: %s: see "+
			"whether a file of their --kubeconfig-folder has its name, whether their --cluster-removal-grace is longer than "+
			"--wait, and their logs, and run this again (%w)", o.Name, s, err)
	}
	return s, err
}

// countAts counts the Ats of a cluster, -1 if that can't be known.
func countAts(ctx context.Context, c client.Client) int {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(cnatv1alpha1.GroupVersion.WithKind("AtList"))
	if err := c.List(ctx, list); err != nil {
		return -1
	}
	return len(list.Items)
}

// countDeployments counts the copies of Deployments in a cluster, and the Deployments there that wait for their copies
// before they are deleted. Both are 0 if that can't be known.
func countDeployments(ctx context.Context, c client.Client) (copies, sources int) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("DeploymentList"))
	if err := c.List(ctx, list); err != nil {
		return 0, 0
	}
	for i := range list.Items {
		d := &list.Items[i]
		switch {
		case controllerutil.ContainsFinalizer(d, replication.Finalizer):
			sources++
		case d.Annotations[replication.AnnotationSource] != "":
			copies++
		}
	}
	return copies, sources
}
