package replication

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/tenure-dev/tenure/pkg/text"
)

// Values of [LabelTarget].
const (
	// TargetConfined allows copies whose Pods keep to the Pod Security Standard "baseline" and run as the namespace's
	// default service account.
	TargetConfined = "true"
	// TargetUnrestricted allows all copies.
	TargetUnrestricted = "unrestricted"
)

// alwaysForbidden are the namespaces that no configuration can open.
var alwaysForbidden = []string{"kube-*"}

// ValidateForbidden reports an entry of [Config.ForbiddenNamespaces] that can't match any namespace's name.
func ValidateForbidden(patterns []string) error {
	for _, p := range patterns {
		name := p
		if stem, wild := strings.CutSuffix(p, "*"); wild && stem != "" {
			name = stem + "x"
		}
		if len(validation.IsDNS1123Label(name)) > 0 {
			return fmt.Errorf("%q is neither the name of a namespace nor the beginning of one and a *", p)
		}
	}
	return nil
}

// forbids reports whether a namespace matches one of the patterns.
func forbids(patterns []string, namespace string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		stem, wild := strings.CutSuffix(p, "*")
		return namespace == p || wild && strings.HasPrefix(namespace, stem)
	})
}

// space is what matters to copies about a namespace of a target.
type space struct {
	Missing bool
	// Label is the value of LabelTarget; "" if it isn't set.
	Label string
}

// refuses returns what prevents a copy from being written there, as a state and its text; stateGone and "" if nothing
// does.
func (s space) refuses(namespace string, d *appsv1.Deployment) (copyState, string) {
	switch {
	case s.Missing:
		return stateNotTarget, fmt.Sprintf("there is no namespace %s: make it there, with the label %s=%s", namespace,
			LabelTarget, TargetConfined)
	case s.Label == TargetUnrestricted:
		return stateGone, ""
	case s.Label == "":
		return stateNotTarget, fmt.Sprintf("namespace %s isn't a target: label it there %s=%s", namespace,
			LabelTarget, TargetConfined)
	case s.Label != TargetConfined:
		return stateNotTarget, fmt.Sprintf("namespace %s isn't a target: its label %s is %q, neither %s nor %s",
			namespace, LabelTarget, s.Label, TargetConfined, TargetUnrestricted)
	}
	if beyond := privileges(&d.Spec.Template); len(beyond) > 0 {
		return stateNotAllowed, fmt.Sprintf("its Pods ask for more than namespace %s, labelled %s=%s, allows: %s",
			namespace, LabelTarget, TargetConfined, strings.Join(beyond, ", "))
	}
	return stateGone, ""
}

// podSecurity evaluates Pods as the API server's own Pod Security admission does.
var podSecurity = newPodSecurity()

func newPodSecurity() policy.Evaluator {
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		panic(err) // a programming error: the checks are the library's own
	}
	return evaluator
}

// privileges returns what Pods of a template need beyond TargetConfined.
func privileges(pods *corev1.PodTemplateSpec) []string {
	var beyond []string
	baseline := api.LevelVersion{Level: api.LevelBaseline, Version: api.LatestVersion()}
	for _, result := range podSecurity.EvaluatePod(baseline, &pods.ObjectMeta, &pods.Spec) {
		if result.Allowed {
			continue
		}
		what := result.ForbiddenReason
		if result.ForbiddenDetail != "" {
			what += " (" + result.ForbiddenDetail + ")"
		}
		beyond = append(beyond, what)
	}
	for _, account := range []string{pods.Spec.ServiceAccountName, pods.Spec.DeprecatedServiceAccount} {
		if account != "" && account != "default" {
			return append(beyond, fmt.Sprintf("service account %q", account))
		}
	}
	return beyond
}

const (
	// spaceLife is how long it may take until the removal of the label takes effect.
	spaceLife = 5 * time.Second
	// spaceAgain bounds how long it may take until a new label takes effect. Namespaces aren't watched, because that
	// would need the right to read all of them.
	spaceAgain = time.Minute
)

// spaces caches namespaces of targets for spaceLife.
type spaces struct {
	mu    sync.Mutex // guards all below
	known map[spaceID]seenSpace
	swept time.Time
}

// spaceID is a namespace of a target. Another connection under the target's name may lead to another cluster.
type spaceID struct {
	target     multicluster.ClusterName
	connection any
	namespace  string
}

// seenSpace is a namespace as it was last read. at is when that was, and since is from when on it has been so.
type seenSpace struct {
	space
	at, since time.Time
}

func (s *spaces) recall(id spaceID, now time.Time) (seenSpace, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen, found := s.known[id]
	return seen, found && now.Sub(seen.at) < spaceLife
}

// again returns after which delay to read a namespace again that isn't open. The longer it hasn't been, the longer
// it is.
func (s seenSpace) again(now time.Time) time.Duration {
	return min(max(now.Sub(s.since), spaceLife), spaceAgain)
}

func (s *spaces) keep(id spaceID, there space, now time.Time) seenSpace {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known == nil {
		s.known = map[spaceID]seenSpace{}
	}
	seen := seenSpace{there, now, now}
	if old, found := s.known[id]; found && old.space == there {
		seen.since = old.since
	}
	s.known[id] = seen
	s.sweep(now)
	return seen
}

// sweep drops expired entries from time to time. The caller holds mu.
func (s *spaces) sweep(now time.Time) {
	if now.Sub(s.swept) < noteLife {
		return
	}
	s.swept = now
	maps.DeleteFunc(s.known, func(_ spaceID, seen seenSpace) bool { return now.Sub(seen.at) >= spaceLife })
}

func (s *spaces) forget(id spaceID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.known, id)
}

func (c *copyActor) spaceID() spaceID {
	return spaceID{c.target, connectionTo(c.cluster), c.key.Namespace}
}

// connectionTo returns what tells a cluster's connection from another one: its transport, which the shards that see a
// target over one connection have in common, or else its configuration.
func connectionTo(cl cluster.Cluster) any {
	config := cl.GetConfig()
	if by := config.Transport; by != nil && reflect.ValueOf(by).Comparable() { // a function can't be compared
		return by
	}
	return config
}

// enter returns what prevents a configuration from being written in the target; nil if nothing does. missing says that
// the namespace has to be made first, and may be.
func (c *copyActor) enter(ctx context.Context, step step) (barred *outcome, missing bool, err error) {
	there, err := c.readSpace(ctx)
	if err != nil {
		return nil, false, err
	}
	to := there.space
	if there.Missing && c.r.config.CreateNamespaces {
		to = space{Label: TargetConfined} // it would be created with this label
	}
	d, err := toDeployment(step.Config)
	if err != nil {
		return nil, false, err
	}
	if state, why := to.refuses(c.key.Namespace, d); state != stateGone {
		return &outcome{State: state, Text: text.Line(why, maxText), After: there.again(c.r.now())}, false, nil
	}
	return nil, there.Missing, nil
}

// readSpace returns the copy's namespace, read from the API server if the cached state is too old.
func (c *copyActor) readSpace(ctx context.Context) (seenSpace, error) {
	if there, known := c.r.spaces.recall(c.spaceID(), c.r.now()); known {
		return there, nil
	}
	return c.readSpaceAgain(ctx)
}

// readSpaceAgain returns the copy's namespace, read from the API server.
func (c *copyActor) readSpaceAgain(ctx context.Context) (seenSpace, error) {
	namespace := &corev1.Namespace{}
	err := c.cluster.GetAPIReader().Get(ctx, client.ObjectKey{Name: c.key.Namespace}, namespace)
	if client.IgnoreNotFound(err) != nil {
		return seenSpace{}, fmt.Errorf("reading namespace %s: %w", c.key.Namespace, err)
	}
	there := space{Missing: err != nil, Label: namespace.Labels[LabelTarget]}
	return c.r.spaces.keep(c.spaceID(), there, c.r.now()), nil
}

// podSecurityPrefix is the prefix of the labels by which a namespace restricts its Pods.
const podSecurityPrefix = "pod-security.kubernetes.io/"

// makeSpace creates the copy's namespace as a target, with the same Pod Security labels as the source's namespace.
func (c *copyActor) makeSpace(ctx context.Context) error {
	source := &corev1.Namespace{}
	if err := c.home.GetAPIReader().Get(ctx, client.ObjectKey{Name: c.key.Namespace}, source); err != nil {
		err = fmt.Errorf("reading namespace %s of the source: %w", c.key.Namespace, err)
		if !isRefusal(err) {
			err = errors.Join(errHome, err) // otherwise the target would count as failed
		}
		return err
	}
	labels := map[string]string{LabelTarget: TargetConfined}
	for name, value := range source.Labels {
		if strings.HasPrefix(name, podSecurityPrefix) {
			labels[name] = value
		}
	}
	c.r.spaces.forget(c.spaceID())
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: c.key.Namespace, Labels: labels}}
	err := c.cluster.GetClient().Create(ctx, namespace, client.FieldOwner(FieldManager))
	switch {
	case err == nil:
		return nil
	case !apierrors.IsAlreadyExists(err):
		return fmt.Errorf("creating namespace %s: %w", c.key.Namespace, err)
	}
	// Somebody else may have created it. If that was a reconcile of another source, what was read before may be cached.
	there, failure := c.readSpaceAgain(ctx)
	if failure == nil && there.Missing {
		failure = fmt.Errorf("creating namespace %s, which isn't there, was refused, perhaps by an admission webhook: %w",
			c.key.Namespace, err)
	}
	return failure
}
