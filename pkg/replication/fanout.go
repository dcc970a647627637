package replication

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/tenure-dev/tenure/pkg/apierror"
	"github.com/tenure-dev/tenure/pkg/kubeconfig"
	"github.com/tenure-dev/tenure/pkg/text"
)

// fanOut brings all copies further, each cluster independently of the others. An error concerns the whole source.
func (a *actor) fanOut(ctx context.Context, wish wish, known, keepers, targets []multicluster.ClusterName,
	record record) (_ []outcome, err error) {
	if a.uid, err = a.identify(ctx); err != nil {
		return nil, err
	}
	a.targets = targets
	base, err := newTemplate(a.source, a.name, a.uid)
	if err != nil {
		return nil, err
	}
	shares := wish.shares(wish.weighed(targets, record.Copies, a.name), record.GivenUp)
	clusters := union(targets, record.Copies)
	strays := a.strays(ctx, keepers, clusters)
	clusters = union(clusters, strays)
	outcomes, failures := make([]outcome, len(clusters)), make([]error, len(clusters))
	var group errgroup.Group
	group.SetLimit(a.r.config.FanOut)
	for i, name := range clusters {
		c, wanted := &copyActor{actor: a, target: name}, slices.Contains(targets, name)
		c.givenUp = wanted && slices.Contains(record.GivenUp, name)
		c.stray = record.Guessed || slices.Contains(strays, name)
		outcomes[i].Cluster, outcomes[i].Wanted = name, wanted
		switch {
		case !slices.Contains(known, name):
			outcomes[i].become(c.absent(wanted))
			continue
		case !wanted && wish.All:
			// It is there for other things now. If that is a mistake, no copy is lost by it.
			outcomes[i].become(c.away(copyStays, 0))
			outcomes[i].Left = true
			continue
		case wanted && base.unfit != "":
			outcomes[i].become(outcome{State: stateRefused, Text: base.unfit})
			continue
		case wanted:
			if c.want, err = base.want(shares[name], wish.Overrides[name]); err != nil {
				_ = group.Wait()
				return nil, err
			}
		}
		group.Go(func() error {
			defer func() { // nothing else recovers it, and each holder of the source would end in turn
				if p := recover(); p != nil {
					outcomes[i].become(c.failed(ctx, fmt.Errorf("the work on the copy panicked: %v\n%s", p, debug.Stack())))
				}
			}()
			var o outcome
			o, failures[i] = c.run(ctx)
			outcomes[i].become(o)
			return nil
		})
	}
	_ = group.Wait() // failures has the errors of all
	if err := errors.Join(append(failures, ctx.Err())...); err != nil {
		return nil, err
	}
	return outcomes, nil
}

// strayLook bounds one look into a cache, which waits until the cache is filled.
const strayLook = 100 * time.Millisecond

// strays returns the clusters whose cache shows a copy of this source that isn't in the record. Either somebody has
// written an old list of copies, or a late request of an earlier holder made the copy. Caches of clusters that keep no
// copies aren't looked into: without rights there they are never filled.
func (a *actor) strays(ctx context.Context,
	keepers, told []multicluster.ClusterName) (found []multicluster.ClusterName) {
	ctx, cancel := context.WithTimeout(ctx, a.r.config.TargetTimeout)
	defer cancel()
	for _, name := range keepers { // one whose cache can't be filled keeps neither the source waiting nor the others
		if _, listed := slices.BinarySearch(told, name); listed || name == a.name || !a.r.health(name).Usable {
			continue
		}
		cl, err := a.r.config.Clusters.GetCluster(ctx, name)
		if err != nil {
			continue // then its cache can't have shown a copy
		}
		d, err := a.glance(ctx, cl)
		if d == nil || err != nil {
			continue
		}
		view := copyView{Source: sourceKey(a.name, a.key), SourceCluster: a.uid, Copy: d}
		if ours, sure := view.ours(); ours && sure && d.Annotations[AnnotationOwnerUID] == string(a.source.UID) {
			found = append(found, name)
		}
	}
	return found
}

// glance returns what a cluster's cache shows, without waiting for long until it is filled; nil if it shows nothing.
// After the context's deadline, only a cache that is filled shows anything.
func (a *actor) glance(ctx context.Context, cl cluster.Cluster) (*appsv1.Deployment, error) {
	within := strayLook
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		ctx, within = context.WithoutCancel(ctx), time.Millisecond
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	return read(ctx, cl.GetClient(), a.key)
}

// spared returns the outcome for a copy that must not be deleted, since its cluster is a target under another name, or
// may be; nil if it isn't. Which names are of one cluster may not be known yet, or never. What targets answer is waited
// for as long as one target may take. Those that don't answer hold up no deletion, except that of a stray, and any
// while clusters may still connect: it may be the copy of such a target.
func (c *copyActor) spared(ctx context.Context, d *appsv1.Deployment) (doubt *outcome) {
	ctx, cancel := context.WithTimeout(ctx, c.r.config.TargetTimeout)
	defer cancel()
	left := c.r.connecting()
	careful := c.stray || left > 0
	for _, name := range c.targets {
		its, err := c.lookUp(ctx, name, d.UID, careful)
		switch {
		case err == nil && its != nil && its.UID == d.UID:
			return &outcome{State: stateGone}
		case err != nil && careful && doubt == nil:
			o := c.away(fmt.Sprintf("isn't wanted, but %s can't be read, and may be the same cluster", name),
				sooner(unknownAgain, left))
			doubt = &o
		}
	}
	return doubt
}

// lookUp returns the Deployment that a target has, nil if there is none. A cache may be old: a careful look believes it
// only if it shows the copy of that UID.
func (c *copyActor) lookUp(ctx context.Context, target multicluster.ClusterName, uid types.UID,
	careful bool) (*appsv1.Deployment, error) {
	cl, err := c.r.config.Clusters.GetCluster(ctx, target)
	if err != nil {
		return nil, fmt.Errorf("finding cluster %s: %w", target, err)
	}
	its, err := c.glance(ctx, cl) // also of one that can't be reached now
	switch {
	case its != nil && (its.UID == uid || !careful):
	case c.r.health(target).Usable:
		return read(ctx, cl.GetAPIReader(), c.key) // the cache may not show it yet
	case err == nil && careful:
		err = errors.New("its cache may be old")
	}
	return its, err
}

// become replaces an outcome, but keeps its Cluster and Wanted.
func (o *outcome) become(of outcome) {
	of.Cluster, of.Wanted = o.Cluster, o.Wanted
	*o = of
}

// absent returns the outcome for a cluster that wasn't listed when this reconcile began. Nothing is done there, even if
// the cluster is back by now: what * stands for, and which clusters may get a copy, was decided without it. There may
// be thousands of names that nothing is known about, so they cost no memory.
func (c *copyActor) absent(wanted bool) outcome {
	ok, since := c.r.config.Targets.Usable(c.target)
	switch {
	case ok:
		return c.unconnected("isn't connected yet")
	case !since.IsZero():
		return c.awaySince(since)
	}
	o := c.away("isn't known", unknownAgain)
	if !wanted {
		o.Text = "isn't known: if it is gone for good, take it off the annotation " + AnnotationCopies
	}
	if left := c.r.connecting(); left > 0 {
		o.Pending, o.After = true, left
	}
	return o
}

// copyStays and goneOrNot are the texts about a cluster that may have a copy, and has no role deployments: while * is
// asked for, and when the copy should go.
const (
	copyStays = "has no role deployments: a copy there stays as it is. " + addOrTakeOff
	goneOrNot = "has no role deployments, so whether it has a copy can't be read. " + addOrTakeOff

	addOrTakeOff = "Add deployments to its roles, or, if it has no copy, take it off the annotation " + AnnotationCopies
)

// run brings one copy as far as it can be brought now. A failure of the cluster is an outcome. An error is about the
// source or about this process.
func (c *copyActor) run(ctx context.Context) (outcome, error) {
	ok, since := c.r.config.Targets.Usable(c.target)
	switch {
	case !ok && since.IsZero():
		return c.unconnected("isn't known to answer"), nil
	case !ok:
		return c.awaySince(since), nil
	case c.givenUp: // it is back, but its share is with others: leave its replicas as they are
		return outcome{State: stateProgressing, After: firstDelay}, nil
	}
	note := c.recall()
	wait := note.SilentUntil.Sub(c.r.now())
	if wait > 0 {
		return c.silent(note.said, wait), nil
	}
	if wait, c.trial = c.r.config.Targets.PutOff(c.target, c.key.Namespace); wait > 0 {
		if note.Silences == 0 {
			note.said = ""
		}
		return c.silent(note.said, min(wait, longestSilence)), nil // it may serve others sooner than it asked for
	}
	o, err := c.work(ctx)
	if err != nil {
		return c.after(ctx, err)
	}
	c.r.connections.made(c.connection())
	if c.recall().Silences > 0 {
		c.note(func(n *copyNote) { n.Silences = 0 })
	}
	return o, nil
}

// after returns what an error of the work on a copy means: an outcome if it is about the target, else the error.
func (c *copyActor) after(ctx context.Context, err error) (outcome, error) {
	retryAfter := c.r.config.Targets.RetryAfter(ctx, c.target)
	notStarted := &cache.ErrCacheNotStarted{}
	var wait time.Duration
	switch {
	case errors.Is(err, errStale), errors.Is(err, errHome), ctx.Err() != nil:
		return outcome{State: stateProgressing}, err
	case errors.Is(err, multicluster.ErrClusterNotFound), errors.As(err, &notStarted):
		o := c.unconnected("isn't connected yet")
		switch {
		case o.Pending:
		case c.want == nil && c.r.keepsNone(c.target):
			o.Text = goneOrNot
		default:
			o.Text += ": may its Deployments be listed and watched?"
		}
		return o, nil
	case errors.Is(err, errBusy):
		return waiting(errBusy), nil
	case errors.Is(err, kubeconfig.ErrLimited): // before it is taken for silence
		return waiting(kubeconfig.ErrLimited), nil
	case apierrors.IsTooManyRequests(err): // it does answer
		c.note(func(n *copyNote) { wait = n.silent(tooMany, min(retryAfter, longestDelay), c.r.now()) })
		return c.silent(tooMany, wait), nil
	case noAnswer(err), apierror.Code(err) == http.StatusUnauthorized: // no event tells when credentials are repaired
		said := saidBy(err)
		c.note(func(n *copyNote) { wait = n.silent(said, min(retryAfter, longestSilence), c.r.now()) })
		return c.silent(said, wait), nil
	case isRefusal(err):
		return c.refused(err), nil
	}
	return c.failed(ctx, err), nil
}

// saidBy returns the text about a target that gave no usable answer; "" if it gave none at all.
func saidBy(err error) string {
	code := apierror.Code(err)
	switch {
	case errors.Is(err, errUnanswered):
		return errUnanswered.Error()
	case code == http.StatusUnauthorized || code == http.StatusInternalServerError:
		return text.Line(err.Error(), maxText)
	}
	return ""
}

// failed returns the outcome after an unforeseen error, which is logged. If it were the reconcile's error, the source
// would lose the timers of its other copies.
func (c *copyActor) failed(ctx context.Context, err error) outcome {
	o := c.away("can't be used", 0)
	c.note(func(n *copyNote) { o.After = n.hold(holdFailed, "", longestDelay, c.r.now()) })
	ctrl.LoggerFrom(ctx).Error(err, "the work on a copy failed; it is tried again", "target", c.target, "in",
		o.After.String())
	return o
}

// holdFailed is the key of the hold after an unforeseen error. It only spaces the tries that no event causes.
const holdFailed = "failed"

// limitedAgain is the delay after our own limits of requests, or of slow writes, to a cluster left no time for a try.
const limitedAgain = 5 * time.Second

// waiting returns the outcome for a cluster in which our own limit left no time for a try.
func waiting(limit error) outcome {
	return outcome{State: stateProgressing, Text: "waits for its turn: " + limit.Error(), After: limitedAgain}
}

// unknownAgain is when to look again for a cluster that is away or not connected. The Reconciler's owner enqueues the
// sources when a cluster comes back; this is a fallback.
const unknownAgain = time.Minute

func (c *copyActor) away(why string, after time.Duration) outcome {
	return outcome{State: stateAway, Text: why, After: after}
}

func (c *copyActor) awaySince(since time.Time) outcome {
	return c.away(fmt.Sprintf("away since %s UTC", since.UTC().Format(time.DateTime)), unknownAgain)
}

// tooMany is the text about a cluster that answered 429.
const tooMany = "has too many requests"

// silent returns the outcome for a cluster that doesn't answer, or only with an error of its own or of a webhook, or
// that it doesn't take the credentials.
func (c *copyActor) silent(said string, wait time.Duration) outcome {
	switch said {
	case "":
		return c.away("doesn't answer", wait)
	case tooMany:
		return outcome{State: stateProgressing, Text: tooMany, After: wait}
	}
	return outcome{State: stateRefused, Text: said, After: wait}
}

// unconnected returns the outcome for a cluster that isn't connected (yet), which may not be its own fault.
func (c *copyActor) unconnected(why string) outcome {
	if left := c.r.connections.missing(c.connection(), c.r.now()); left > 0 {
		return outcome{State: stateAway, Text: why, Pending: true, After: left}
	}
	return c.away(why, unknownAgain)
}

func (c *copyActor) connection() connection { return connection{c.request, c.target} }

// passingAgain bounds the delay after a refusal that is likely to pass. No event tells when it is over.
const passingAgain = time.Minute

// passes reports whether a create was refused for what is likely to pass: the namespace is being deleted, or its quota
// is used up. Rights and policies stay as they are for longer.
func passes(err error) bool {
	return apierrors.IsForbidden(err) && (apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) ||
		strings.Contains(err.Error(), "exceeded quota"))
}

func (c *copyActor) refused(err error) outcome {
	o := outcome{State: stateRefused, Text: text.Line(err.Error(), maxText)}
	view, most := copyView{Want: c.want}, longestDelay
	if c.making && passes(err) {
		most = passingAgain
	}
	c.note(func(n *copyNote) { o.After = n.hold(view.refusedKey(), o.Text, most, c.r.now()) })
	return o
}
