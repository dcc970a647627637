package at

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"github.com/tenure-dev/tenure/pkg/apierror"
	cnatv1alpha1 "github.com/tenure-dev/tenure/pkg/apis/cnat/v1alpha1"
	"github.com/tenure-dev/tenure/pkg/budget"
	"github.com/tenure-dev/tenure/pkg/text"
)

// act carries a decision out. again reports whether the API server showed the view to be out of date, so another
// look is needed.
func (a *actor) act(ctx context.Context, at *cnatv1alpha1.At,
	next decision) (result ctrl.Result, again bool, err error) {
	if next.Delete {
		return a.delete(ctx, at)
	}
	if next.Status != nil {
		done, err := a.writeStatus(ctx, at, *next.Status, next.MakePod)
		if err != nil {
			return ctrl.Result{}, false, err
		}
		if !done {
			return retryLater, false, nil
		}
	}
	for _, event := range next.Events {
		a.sendEvent(at, event)
	}
	if next.MakePod {
		if next.Status == nil || isTrimmed(at) {
			now, err := a.unchanged(ctx, at)
			if err != nil || now == nil {
				return ctrl.Result{}, err == nil, err
			}
			at = now
		}
		return a.makePod(ctx, at)
	}
	result = ctrl.Result{RequeueAfter: next.After}
	if at.Status.Phase == cnatv1alpha1.AtDone {
		result.Priority = new(tidying)
	}
	return result, false, nil
}

// tidying is the priority of deleting Ats that have been DONE for long. It is lower than that of all other keys, even
// those of a shard that was just taken over.
const tidying = handler.LowPriority - 1

// writeStatus writes the status if the At is unchanged since it was read, and reports whether it did. The write carries
// that resourceVersion, so a stale view conflicts. The reply to a claim replaces the At, with all fields that a cache
// left out; other replies aren't read. Of what is sent, the API server takes the status alone.
//
// Before Kubernetes 1.36 it also takes the ownership of labels and other metadata that a cache left out from their
// field managers (docs/upgrade.md). A patch would leave it to them. But API servers don't compare the UID of a status
// that is patched, and the right to patch would have to be in each cluster before the first replica that uses it.
func (a *actor) writeStatus(ctx context.Context, at *cnatv1alpha1.At, status cnatv1alpha1.AtStatus,
	claims bool) (bool, error) {
	begins := claims && at.Status.Phase != cnatv1alpha1.AtRunning
	at.Status = status
	seen := at.ResourceVersion
	if claims {
		// This is noted before the write. If the reply is lost, the claim can be recognised by its content, and needn't
		// be renewed.
		a.notes.claims(at.UID, claimOf(&status), noteUnused, a.clock.Now())
	}
	var options []client.SubResourceUpdateOption
	if !claims && a.unread != nil {
		options = append(options, a.unread)
	}
	err := a.cluster.GetClient().Status().Update(ctx, at, options...)
	switch {
	case err == nil:
		a.notes.wrote(at.UID, seen, a.clock.Now())
		if begins && a.notes.begins(at.UID, a.clock.Now()) {
			a.sendEvent(at, warning{ReasonRestored, "Run", "it had been started before, and was PENDING again: its cluster " +
				"was restored from a backup; the command runs again"})
		}
		return true, nil
	case apierrors.IsConflict(err) && !apierror.IsDenial(err), a.isGone(ctx, at, err):
		// Somebody else wrote first, and the event of that write is on its way.
		if claims {
			a.notes.unsure(at.UID, a.clock.Now())
		}
		return false, nil
	default:
		return false, fmt.Errorf("writing status %s of At %s: %w", status.Phase, client.ObjectKeyFromObject(at), err)
	}
}

// isGone reports whether a write was answered 404 since the At is gone, so that an event of it follows. None follows
// where the API has no subresource status, which is answered in the same way, or doesn't know the path at all.
func (a *actor) isGone(ctx context.Context, at *cnatv1alpha1.At, answer error) bool {
	if !apierrors.IsNotFound(answer) || apierrors.HasStatusCause(answer, metav1.CauseTypeUnexpectedServerResponse) {
		return false
	}
	now, err := readAt(ctx, a.cluster.GetAPIReader(), client.ObjectKeyFromObject(at))
	return err == nil && (now == nil || now.UID != at.UID)
}

// unchanged reads the whole At and returns it if it is still as it was before its Pod was looked for, otherwise nil. It
// replaces the compare-and-swap when there is nothing to write. Without it, others could have renewed the claim, and
// made, ended and deleted a Pod between the two reads. It also reads what a cache left out ([Trim]), if the reply to
// the claim didn't bring that.
func (a *actor) unchanged(ctx context.Context, at *cnatv1alpha1.At) (*cnatv1alpha1.At, error) {
	now, err := readAt(ctx, a.cluster.GetAPIReader(), client.ObjectKeyFromObject(at))
	if err != nil || now == nil || now.UID != at.UID || now.ResourceVersion != at.ResourceVersion {
		return nil, err
	}
	return now, nil
}

// makePod makes the Pod under the claim in the At's status.
func (a *actor) makePod(ctx context.Context, at *cnatv1alpha1.At) (ctrl.Result, bool, error) {
	claim := claimOf(&at.Status)
	// Until the reply arrives, the request may have succeeded.
	a.notes.unsure(at.UID, a.clock.Now())
	pod := newPod(at, a.pods)
	var options []client.CreateOption
	if a.unread != nil {
		options = append(options, a.unread)
	}
	err := a.cluster.GetClient().Create(ctx, pod, options...)
	switch {
	case err == nil:
		a.notes.claims(at.UID, claim, noteMade, a.clock.Now())
		// The Pod's end comes as an event. In case the cache never shows the Pod, look for it later; sooner if the
		// condition Blocked must be removed.
		after := recheckAfter
		if blockOf(at.Status.Conditions) != nil {
			after = cacheGrace
		}
		return ctrl.Result{RequeueAfter: after}, false, nil
	case apierrors.IsAlreadyExists(err) && !apierror.IsDenial(err):
		// Nobody else ever had a claim. A look shows whether this request was carried out: then the Pod is ours, unless
		// that is gone already and a stranger has taken its name.
		if claim.restarts == 0 {
			a.taken = &claim
		}
		return ctrl.Result{}, true, nil
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		// The At is deleted with its namespace, which may be stuck. Nobody is told: such a namespace refuses events, too.
		a.notes.claims(at.UID, claim, noteUnused, a.clock.Now())
		return ctrl.Result{RequeueAfter: orDeadline(a.assemble(at, nil, false), longestBackoff)}, false, nil
	}
	var showErr error
	switch {
	case isRefusal(err):
		a.notes.claims(at.UID, claim, noteUnused, a.clock.Now())
		showErr = a.showRefusal(ctx, at, fmt.Sprintf("Pod %s was refused", pod.Name), err)
	case apierror.Code(err) == http.StatusInternalServerError && at.Status.Restarts > 0:
		// The server's own error. It may pass, and the Pod may be there, so it isn't shown the first time.
		showErr = a.showRefusal(ctx, at, fmt.Sprintf("making Pod %s failed", pod.Name), err)
	}
	if showErr != nil {
		return ctrl.Result{}, false, showErr
	}
	refused := a.assemble(at, nil, false)
	if deadline, has := startBy(refused); has && isRefusal(err) && isShown(err) &&
		presentBlock(at, ReasonPodRefused) != nil && !apierrors.IsUnauthorized(err) &&
		deadline.Sub(refused.Now) < longestBackoff {
		// The delay after an error might outlast the deadline.
		return ctrl.Result{RequeueAfter: orDeadline(refused, backoff(at.Status.Conditions, refused.Now))}, false, nil
	}
	return ctrl.Result{}, false, fmt.Errorf("making Pod of At %s: %w", client.ObjectKeyFromObject(at), err)
}

// isRefusal reports whether an error is the API server's answer that it didn't carry out the request. All other errors
// leave that open. So does 500, unless a webhook couldn't be called: objects are admitted before they are stored.
func isRefusal(err error) bool {
	code := apierror.Code(err)
	return apierror.IsDenial(err) || code >= 400 && code < 500 && code != http.StatusRequestTimeout ||
		code == http.StatusInternalServerError && strings.Contains(err.Error(), "failed calling webhook ")
}

// isShown reports whether a refusal is shown. The others pass by themselves.
func isShown(err error) bool {
	return apierror.IsDenial(err) || !apierrors.IsTooManyRequests(err) && !apierrors.IsConflict(err)
}

// showRefusal shows in the At's status that the API server doesn't take its Pod (a quota, a policy, a webhook that
// fails).
func (a *actor) showRefusal(ctx context.Context, at *cnatv1alpha1.At, what string, cause error) error {
	if !isShown(cause) {
		return nil
	}
	a.refusals.Take(at.Namespace, a.clock.Now())
	message := text.Line(fmt.Sprintf("%s: %v", what, cause), text.Note)
	if shown := presentBlock(at, ReasonPodRefused); shown != nil && !a.isNews(at, shown.Message, message) {
		return nil
	}
	next := editStatus(view{At: at, Now: a.clock.Now()}).block(ReasonPodRefused, "MakePod", message)
	if done, err := a.writeStatus(ctx, at, *next.Status, false); err != nil || !done {
		return err
	}
	for _, event := range next.Events {
		a.sendEvent(at, event)
	}
	return nil
}

// isNews reports whether a refusal has another cause than the one that is shown, and may be shown instead.
func (a *actor) isNews(at *cnatv1alpha1.At, shown, message string) bool {
	if text.Cause(shown) == text.Cause(message) {
		return false
	}
	_, ok := a.causes.Take(string(at.UID), a.clock.Now())
	return ok
}

// causeBudget bounds how often an At shows that its Pod is refused for another cause. Each time costs a write, and the
// event of that write brings the next try: two webhooks that refuse it in turn would keep both going.
var causeBudget = budget.Config{Burst: 3, Every: 5 * time.Minute, PerSecond: 20}

// refusalBudget bounds how often refused Pods of one namespace are tried again. Only refusals use it up: once Pods are
// accepted, nothing is held back. Whatever other namespaces use up, one Pod may be tried every few seconds: its quota
// may have been raised.
var refusalBudget = budget.Config{Burst: 100, Every: time.Second / 20, PerSecond: 50, Least: refusedPause / 2}

// refusedPause is how long an At waits at least when that budget is spent. An older refusal waits for half its age or
// more, so that a flood is tried less and less: after such a wait the queue's own delays, which double, begin anew. No
// wait is longer than [longestBackoff], so after a quota was raised nobody waits longer than without the flood.
const refusedPause = 10 * time.Second

// delete deletes an At whose time to live is over, unless it was changed or made again since it was read.
func (a *actor) delete(ctx context.Context, at *cnatv1alpha1.At) (ctrl.Result, bool, error) {
	err := a.cluster.GetClient().Delete(ctx, at,
		client.Preconditions{UID: new(at.UID), ResourceVersion: new(at.ResourceVersion)},
		client.PropagationPolicy(metav1.DeletePropagationBackground))
	denied := apierror.IsDenial(err)
	switch {
	case err == nil, apierrors.IsNotFound(err) && !denied:
		return ctrl.Result{}, false, nil
	case apierrors.IsConflict(err) && !denied:
		return retryLater, false, nil
	default:
		return ctrl.Result{}, false, fmt.Errorf("deleting At %s after its time to live: %w",
			client.ObjectKeyFromObject(at), err)
	}
}

// controllerName is the reporting controller of the events.
const controllerName = "tenure-at"

// eventBudget bounds the events of one reason in one namespace. The condition of each At says the same as its event.
var eventBudget = budget.Config{Burst: 10, Every: time.Minute, PerSecond: 5}

func (a *actor) sendEvent(at *cnatv1alpha1.At, event warning) {
	left, ok := a.events.Take(at.Namespace+" "+event.Reason, a.clock.Now())
	if !ok {
		return
	}
	also := ""
	if left > 0 {
		also = fmt.Sprintf(" (and %d more like this in the namespace: see the conditions of its Ats)", left)
	}
	message := text.Line(event.Message, text.Note-len(also)) + also
	a.cluster.GetEventRecorder(controllerName).Eventf(at, nil, corev1.EventTypeWarning, event.Reason,
		event.Action, "%s", message)
}
