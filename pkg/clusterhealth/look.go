package clusterhealth

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/tenure-dev/tenure/pkg/kubeconfig"
	"github.com/tenure-dev/tenure/pkg/text"
)

// Reasons, as they appear in events, metrics and [Look].
const (
	ReasonUsable      = "Usable"
	ReasonBadConfig   = "BadKubeconfig"
	ReasonUnreachable = "Unreachable"
	ReasonRefused     = "AccessRefused"
)

// ReasonRemoved is the reason of the event that ends what was reported: the cluster was removed.
const ReasonRemoved = "Removed"

// Look asks the cluster of a kubeconfig Secret whether it can be used. The note says why not, in one line that carries
// no secret and leaves room in an event. uid is the UID of the cluster's namespace kube-system, which tells the cluster
// from all others; "" if it can't be read. Both are asked over one connection, each with its own timeout.
func Look(ctx context.Context, secret *corev1.Secret, policy kubeconfig.Policy,
	timeout time.Duration) (reason, note, uid string) {
	cfg, err := kubeconfig.Connection(secret, policy)
	if err != nil {
		f := badConfig(err)
		return f.reason, f.note, ""
	}
	kubeconfig.Bound(cfg)
	connection, err := kubeconfig.HTTPClientFor(cfg)
	if err != nil {
		f := answer(cfg, err)
		return f.reason, f.note, ""
	}
	defer utilnet.CloseIdleConnectionsFor(connection.Transport)
	f := answer(cfg, askOver(ctx, connection, cfg.Host, timeout))
	if f.usable {
		uid = systemUID(ctx, cfg, connection, timeout)
	}
	return f.reason, f.note, uid
}

// Prove is Look for credentials that are to replace others: an API server that has too many requests proves nothing.
func Prove(ctx context.Context, secret *corev1.Secret, policy kubeconfig.Policy,
	timeout time.Duration) (reason, note string) {
	f := look(ctx, secret, policy, timeout, nil, true)
	if f.busy {
		return ReasonUnreachable, f.note
	}
	return f.reason, f.note
}

// systemUID returns the UID of a cluster's namespace kube-system; "" if it can't be read.
func systemUID(ctx context.Context, cfg *rest.Config, connection *http.Client, timeout time.Duration) string {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	c, err := corev1client.NewForConfigAndClient(cfg, connection)
	if err != nil {
		return ""
	}
	system, err := c.Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		return ""
	}
	return text.Line(string(system.UID), 64) // as long as layouts have it
}

// finding is what a look at a cluster and its Secret found: what is wrong with the Secret, and whether the cluster can
// be used all the same.
type finding struct {
	reason, note string
	usable       bool
	busy         bool         // it has too many requests to serve this one
	passing      bool         // the Secret may become usable without a change ([kubeconfig.Passing])
	shared       *rest.Config // the configuration in use, if it is the Secret's
}

// errBusy is the answer of an API server that serves others. What is said of its limits tells more.
var errBusy = errors.New("the API server answers, but has too many requests (429)")

// look asks over the connection in use if that was made of the same credentials (shared). Otherwise it opens
// another connection, and, with closes, closes it afterwards unless something else uses it.
func look(ctx context.Context, secret *corev1.Secret, policy kubeconfig.Policy, timeout time.Duration, use *Use,
	closes bool) finding {
	cfg, err := kubeconfig.Connection(secret, policy)
	if err != nil {
		return badConfig(err)
	}
	if use != nil && use.Refused == "" && kubeconfig.Same(use.Given, cfg) {
		f := answer(cfg, use.askWithin(ctx, timeout))
		f.shared = use.Given
		return f
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return answer(cfg, ask(ctx, cfg, closes))
}

// badConfig is the finding that a kubeconfig is refused.
func badConfig(err error) finding {
	return finding{reason: ReasonBadConfig, note: err.Error(), passing: kubeconfig.Passing(err)}
}

// askWithin asks the cluster over the connection in use.
func (u *Use) askWithin(ctx context.Context, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return u.Ask(ctx)
}

// answer returns what the result of asking a cluster says.
func answer(cfg *rest.Config, err error) finding {
	if err == nil {
		return finding{reason: ReasonUsable, note: "the API server answers", usable: true}
	}
	if errors.Is(err, errBusy) {
		return finding{reason: ReasonUsable, note: errBusy.Error(), usable: true, busy: true}
	}
	reason := ReasonUnreachable
	if apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err) {
		reason = ReasonRefused
	}
	return finding{reason: reason, note: text.Line(fmt.Sprintf("%s: %v", cfg.Host, err), text.Note/2)}
}

// ask returns why a cluster can't be used with these credentials; nil if it can.
func ask(ctx context.Context, cfg *rest.Config, closes bool) error {
	status, err := kubeconfig.Ask(ctx, cfg, closes)
	return troubleOf(status, err)
}

// askOver is ask over a client that exists.
func askOver(ctx context.Context, connection *http.Client, host string, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	status, err := kubeconfig.AskOver(ctx, connection, host)
	return troubleOf(status, err)
}

// troubleOf returns why a cluster that answers so can't be used; nil if it can.
func troubleOf(status int, err error) error {
	switch {
	case err != nil:
		return err
	case status == http.StatusTooManyRequests:
		return errBusy
	case status == http.StatusUnauthorized:
		return apierrors.NewUnauthorized("the credentials are refused")
	case status == http.StatusForbidden:
		return apierrors.NewForbidden(corev1.Resource("version"), "",
			errors.New("the credentials may not ask for the version"))
	case status != http.StatusOK:
		return fmt.Errorf("GET /version: %d %s", status, http.StatusText(status))
	}
	return nil
}
