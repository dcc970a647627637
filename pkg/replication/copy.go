package replication

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/tenure-dev/tenure/pkg/apierror"
	"github.com/tenure-dev/tenure/pkg/text"
)

// copyActor is the part of a reconcile that is about one target.
type copyActor struct {
	*actor
	target  multicluster.ClusterName
	want    *forms // nil: there should be no copy
	givenUp bool   // its share was divided among the others
	stray   bool   // perhaps no list written before a copy was made names the cluster, so in doubt the copy stays
	cluster cluster.Cluster
	// making reports whether the present step is to make the copy.
	making bool
	// trial reports whether this reconcile must find out whether the target serves again. A cache can't show that.
	trial bool
}

// settle records what later reconciles need to know about an outcome.
func (c *copyActor) settle(view copyView, o outcome) outcome {
	if o.State == stateForeign && view.Live {
		c.note(func(n *copyNote) { o.After = n.hold(view.foreignKey(), o.Text, longestDelay, view.Now) })
	}
	if o.State == stateAvailable && view.Note.HoldKey != "" {
		c.note(func(n *copyNote) { n.HoldKey, n.Holds = "", 0 })
	}
	asWanted := o.State == stateAvailable || o.State == stateProgressing || o.State == stateStalled
	if c.want != nil && asWanted && view.Live && view.Cached == "" && view.Note.HiddenSince.IsZero() {
		c.note(func(n *copyNote) { n.HiddenSince = view.Now })
	}
	return o
}

// read returns the Deployment that a reader has, nil if it has none.
func read(ctx context.Context, reader client.Reader, key client.ObjectKey) (*appsv1.Deployment, error) {
	d := &appsv1.Deployment{}
	if err := reader.Get(ctx, key, d); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return nil, fmt.Errorf("reading the copy %s: %w", key, err)
	}
	return d, nil
}

// look replaces the view's copy by what the API server has.
func (c *copyActor) look(ctx context.Context, view *copyView) error {
	d, err := read(ctx, c.cluster.GetAPIReader(), c.key)
	if err != nil {
		return err
	}
	view.Copy, view.Live = d, true
	if d != nil {
		c.note(func(n *copyNote) { n.judge(d, c.r.config.Scalers) })
	}
	return nil
}

// unchanged reads the copy again after a write that was answered 404 or 409, and reports whether the view was up to
// date all the same. Then the answer is a refusal, as by an admission webhook or a proxy. A copy that isn't there may
// also be missing because its namespace is.
func (c *copyActor) unchanged(ctx context.Context, view *copyView, answer error) (bool, error) {
	before := view.Copy
	if err := c.look(ctx, view); err != nil {
		return false, err
	}
	switch now := view.Copy; {
	case before != nil && now != nil:
		return now.UID == before.UID && now.ResourceVersion == before.ResourceVersion, nil
	case before != nil || now != nil:
		return false, nil
	case !apierrors.IsNotFound(answer):
		return true, nil
	}
	there, err := c.readSpaceAgain(ctx)
	return !there.Missing, err
}

// do carries out one write. If the write shows that the view is out of date, it reads the copy again.
func (c *copyActor) do(ctx context.Context, view *copyView, step step) error {
	// Until the reply arrives, anything may have happened.
	c.note(func(n *copyNote) { n.Written = time.Time{} })
	var err error
	switch step.Act {
	case actDelete:
		err = deleteCopy(ctx, c.cluster, view.Copy)
		if err == nil || apierrors.IsNotFound(err) {
			c.note(func(n *copyNote) { n.Applied = "" }) // a later create isn't a repair of somebody's deletion
		}
		if err == nil {
			return c.look(ctx, view)
		}
	default:
		var result *appsv1.Deployment
		if result, err = c.apply(ctx, view, step); err == nil {
			return c.applied(view, step, result)
		}
	}
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		if same, failure := c.unchanged(ctx, view, err); failure != nil || !same {
			return failure
		}
	}
	if step.Act == actApply && apierrors.IsInvalid(err) {
		// As a strategy of Recreate beside the rollingUpdate that somebody else's strategy had been given: only who set a
		// field can take it away.
		return fmt.Errorf("unless the source is wrong, what somebody set in the copy contradicts it: delete the copy, and "+
			"it is made again: %w", err)
	}
	return err
}

// absentVersion is a version that no object has. An apply that carries it conflicts if the object exists. If the object
// is missing, the API server ignores the version and creates it.
const absentVersion = "1"

func (c *copyActor) apply(ctx context.Context, view *copyView, step step) (*appsv1.Deployment, error) {
	config := step.Config.DeepCopy()
	config.SetResourceVersion(absentVersion)
	if step.Act == actApply {
		config.SetUID(view.Copy.UID)
		config.SetResourceVersion(view.Copy.ResourceVersion)
	}
	err := c.cluster.GetClient().Apply(ctx, client.ApplyConfigurationFromUnstructured(config),
		client.FieldOwner(FieldManager), client.ForceOwnership)
	if err != nil {
		return nil, fmt.Errorf("applying the copy %s: %w", c.key, err)
	}
	return toDeployment(config)
}

func toDeployment(u *unstructured.Unstructured) (*appsv1.Deployment, error) {
	d := &appsv1.Deployment{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, d); err != nil {
		return nil, fmt.Errorf("reading the Deployment: %w", err)
	}
	return d, nil
}

// applied records what the API server made of a configuration.
func (c *copyActor) applied(view *copyView, step step, result *appsv1.Deployment) error {
	left, err := differences(step.Config, result)
	if err != nil {
		return err
	}
	replaced := view.Cached
	if view.Copy != nil {
		replaced = view.Copy.ResourceVersion
	}
	now := c.r.now()
	c.note(func(n *copyNote) {
		n.wrote(replaced, result, c.r.config.Scalers, now)
		n.Applied = step.Config.GetAnnotations()[AnnotationApplied]
		if step.Act == actApply && view.Cached == "" {
			n.Restored = now
		}
		switch {
		case len(left) > 0:
			n.repaired(left, true, now)
		case len(step.Drift) > 0:
			n.repaired(step.Drift, false, now)
		}
	})
	if len(step.Drift) > 0 && len(left) == 0 {
		// Without the copy, an event about a second cluster would only raise the count of the first.
		about := &corev1.ObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Namespace: result.Namespace,
			Name: result.Name, UID: result.UID}
		c.sendEvent(about, corev1.EventTypeNormal, ReasonRepaired,
			fmt.Sprintf("cluster %s: repaired %s", c.target, text.Few(step.Drift, someFields)))
	}
	view.Copy, view.Live = result, true
	return nil
}

func (c *copyActor) id() copyID { return copyID{source: c.source.UID, target: c.target} }

func (c *copyActor) recall() copyNote { return c.r.notes.recall(c.id()) }

func (c *copyActor) note(set func(*copyNote)) { c.r.notes.change(c.id(), c.r.now(), set) }

// noAnswer reports whether an error leaves open whether the cluster works at all.
func noAnswer(err error) bool {
	var request *url.Error // an HTTP client's for a request without an answer, such as one whose stream was reset
	var network *net.OpError
	var timeout net.Error
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF),
		errors.As(err, &request), errors.As(err, &network), errors.As(err, &timeout) && timeout.Timeout():
		return true
	}
	code := apierror.Code(err)
	return code == http.StatusRequestTimeout || code >= 500 && !isUnknownField(err)
}

// isUnknownField reports whether an API server refused a configuration because of a field that it doesn't know. An
// older API server answers so with its own error, which has no reason.
func isUnknownField(err error) bool {
	return apierror.Code(err) == http.StatusInternalServerError &&
		apierrors.ReasonForError(err) == metav1.StatusReasonUnknown &&
		strings.Contains(err.Error(), "failed to create typed patch object")
}

// isRefusal reports whether an error is the API server's answer that it didn't carry out the request.
func isRefusal(err error) bool {
	code := apierror.Code(err)
	return code >= 400 && code < 500 && code != http.StatusTooManyRequests && !noAnswer(err) || isUnknownField(err)
}
