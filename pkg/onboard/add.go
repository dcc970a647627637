package onboard

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenurev1alpha1 "github.com/tenure-dev/tenure/pkg/apis/tenure/v1alpha1"
	"github.com/tenure-dev/tenure/pkg/console"
	"github.com/tenure-dev/tenure/pkg/kubeconfig"
)

// AddOptions say how a cluster is added.
type AddOptions struct {
	Wish
	// Server is the address at which replicas reach the cluster. "" keeps the address; a new cluster gets that of the
	// admin's connection.
	Server string
	// Lifetime that is asked for the token.
	Lifetime time.Duration
	// Wait bounds the wait until the fleet serves the cluster; 0 doesn't wait.
	Wait time.Duration
	// Dry only says what would be done.
	Dry bool
	// AllowHome allows the home cluster itself.
	AllowHome bool
}

// Line is one thing that was done.
type Line struct {
	Where string `json:"where"`
	What  string `json:"what"`
	Done  string `json:"done"`
}

// Report says what a command did.
type Report struct {
	Lines []Line `json:"lines"`
	// Notes are what else is good to know.
	Notes []string `json:"notes,omitempty"`
	// Changed reports whether something was written.
	Changed bool `json:"changed"`
}

func (r *Report) line(where, what, format string, args ...any) {
	r.Lines = append(r.Lines, Line{where, what, fmt.Sprintf(format, args...)})
}

// intent is the plan for adding a cluster.
type intent struct {
	access  Access
	steps   []step
	verdict verdict
	target  target
	known   clusterSecrets
	// taken reports whether live replicas hold shards of the cluster already.
	taken bool
	// unmanaged says what nobody manages any more, since roles are taken away.
	unmanaged []string
	// doubt says what couldn't be found out about the cluster; "" for nothing.
	doubt string
}

// moved reports whether replicas may serve the cluster in another way than by the new Secret: as the Secret that was
// there says, or, without one, by a file of their folder, or by a Secret that was deleted just now.
func (p intent) moved() bool {
	if p.known.Own == nil {
		return p.taken
	}
	return p.verdict.Action == updated && !sameWay(p.known.Held.target, p.target)
}

// notes says what stays as it was, which flag would change it, and what is left to itself. admin is the admin's
// connection.
func (p intent) notes(a AddOptions, admin *rest.Config) (notes []string) {
	if note := a.keptNote(p.access); note != "" {
		notes = append(notes, note)
	}
	if a.Server == "" && p.known.Own != nil && p.known.unfit(p.target.UID) != nil {
		notes = append(notes, p.target.replaced(p.known.Own.Name))
	}
	if a.Server == "" && !sameServer(p.target.Server, admin.Host) {
		notes = append(notes, fmt.Sprintf("replicas go on reaching the cluster at %s: --server says another address",
			p.target.Server))
	}
	if note := p.known.trust(p.target, admin); a.Server == "" && note != "" {
		notes = append(notes, note)
	}
	if p.known.Own != nil && !p.verdict.NewToken {
		held := p.known.Held
		if life := held.Expires.Sub(held.issued); held.Renewed && !held.issued.IsZero() && life > a.Lifetime+time.Minute {
			notes = append(notes, fmt.Sprintf("its token stays, which was issued for %s: tenure cluster rotate %s "+
				"--token-lifetime %s replaces it", span(life), p.known.Own.Name, a.Lifetime))
		}
	}
	return append(notes, p.unmanaged...)
}

// planAdd finds out how the cluster is to be added. It only reads.
func (o Onboarder) planAdd(ctx context.Context, home, there client.Client, a AddOptions) (intent, error) {
	f, err := o.gatherAdd(ctx, home, there, a)
	if err != nil {
		return intent{}, err
	}
	return o.decideAdd(f, a)
}

// decideAdd decides how the cluster is added. If there are several reasons not to, it returns the one that says most
// about which cluster this is: a right that is missing in a cluster that was named by mistake is none.
func (o Onboarder) decideAdd(f facts, a AddOptions) (p intent, err error) {
	p = intent{access: f.access, target: f.target, known: f.known, unmanaged: f.unmanaged,
		taken: serving(f.fleet, o.Name).Held > 0}
	own := f.known.Own
	switch err := f.failed.atHome; {
	case apierrors.IsForbidden(err), apierrors.IsNotFound(err): // home can't be told from others then
	case err != nil:
		return p, fmt.Errorf("home cluster: %w", err)
	case f.atHome == f.target.UID && !a.AllowHome:
		return p, fmt.Errorf("--context: the cluster at %s is the home cluster itself: name the context of cluster %s, or, "+
			"if Ats of home are meant, "+
			"give --context all the same", f.target.Server, o.Name)
	}
	if a.Server == "" {
		if p.target, err = f.target.asBefore(f.known, f.unfit); err != nil {
			return p, err
		}
	}
	if p.verdict, err = judgeSecret(o.Namespace, o.Name, p.target, p.access, p.known, f.now); err != nil {
		return p, err
	}
	// Secrets don't show a cluster of a folder, nor home where its Deployments are copied.
	switch err := f.failed.records; {
	case meta.IsNoMatchError(err):
		return p, console.NotHome(o.Home.Host, err)
	case err == nil:
		if err := clash(f.fleet, f.snapshot.Records.Layouts, o.Name, f.target.UID, own != nil); err != nil {
			return p, err
		}
	}
	if p.doubt, err = o.mayServe(f); err != nil {
		return p, err
	}
	if err := f.failed.namespaces; err != nil {
		return p, err
	}
	if f.missing != "" {
		return p, a.namespaceMissing(f.missing, own)
	}
	if err := f.failed.live; err != nil {
		return p, fmt.Errorf("cluster %s: %w", o.Name, err)
	}
	p.steps, err = decide(f.live, f.want)
	p.verdict = p.verdict.after(p.steps, own)
	if err == nil && own != nil && (p.verdict.NewToken || p.known.Held.Refused == nil && p.moved()) {
		err = immutable(own)
	}
	return p, err
}

// clash returns an error if replicas serve the cluster of that UID under another name, or another cluster under this
// name. own reports whether the name has a Secret: that has been compared with the cluster.
func clash(f console.Fleet, layouts []tenurev1alpha1.Shard, name, uid string, own bool) error {
	switch other := servedAs(f, layouts, name, uid); other {
	case "":
	case kubeconfig.HomeName:
		return fmt.Errorf("NAME %s: replicas serve this cluster as home already (--deployment-source=home), and a "+
			"cluster is served under one name alone, so no Ats can run there", name)
	default:
		return fmt.Errorf("NAME %s: replicas serve this cluster as %s, by its layout in home, and a cluster is served "+
			"under one name alone: give that name, or take %[2]s away first; if you just have, try again when its shards "+
			"are let go of (tenure status)", name, other)
	}
	if other := displaced(f, layouts, name, uid); other != "" && !own {
		return fmt.Errorf("NAME %s: replicas serve another cluster under this name, by its layout in home: the UID of its "+
			"namespace kube-system is %s, and the one here has %s: choose another NAME, or take that cluster away first "+
			"(its file, if it is of --kubeconfig-folder); if you just have, try again when its shards are let go of (tenure "+
			"status)", name, other, uid)
	}
	return nil
}

// Add makes the cluster a part of the fleet, and waits until it is served. A second run leaves what is up to date
// and updates the rest.
func (o Onboarder) Add(ctx context.Context, a AddOptions) (r Report, err error) {
	home, err := o.home()
	if err != nil {
		return r, err
	}
	there, err := o.workload()
	if err != nil {
		return r, err
	}
	p, err := o.planAdd(ctx, home, there, a)
	if err != nil {
		return r, err
	}
	r = summarize(o.Name, p.steps)
	if p.known.Own != nil {
		r.Notes = append(r.Notes, p.notes(a, o.Workload)...)
	}
	r.note(p.doubt)
	secret := fmt.Sprintf("Secret %s/%s", o.Namespace, o.Name)
	if a.Dry {
		if p.verdict.NewToken {
			r.line(o.Name, "token", "requested, for %s", span(a.Lifetime))
		}
		r.secret(secret, p.verdict)
		r.Changed = false
		return r, nil
	}
	noted, err := o.recordWish(ctx, home, &p)
	if err != nil {
		return Report{}, fmt.Errorf("writing %s: %w", secret, err)
	}
	if made, err := carryOut(ctx, there, p.steps); err != nil {
		r = summarize(o.Name, made)
		if noted {
			r.line("home", secret, "%s: what it says of the cluster", updated)
		}
		return r, fmt.Errorf("cluster %s: %w", o.Name, err)
	}
	if err := awaitAPI(ctx, o.Workload); err != nil {
		return r, fmt.Errorf("cluster %s: %w", o.Name, err)
	}
	if err := o.addSecret(ctx, home, a, p, secret, &r); err != nil {
		return r, err
	}
	if a.Wait <= 0 {
		return r, nil
	}
	began := time.Now()
	s, err := o.awaitService(ctx, home, a.Wait, p)
	if err != nil {
		return r, err
	}
	r.note(s.Doubt)
	done := s.String()
	if r.Changed {
		done += fmt.Sprintf(", after %.1fs", time.Since(began).Seconds())
	}
	r.line("home", "shards", "%s", done)
	return r, nil
}

// recordWish writes what is wanted to the Secret that is there, before anything else is changed, and reports whether
// that changed it. If this run is cut short, the next one completes it, unless its flags say otherwise. If there is no
// Secret yet, recordWish makes sure that one may be made.
func (o Onboarder) recordWish(ctx context.Context, home client.Client, p *intent) (bool, error) {
	if p.known.Own == nil {
		return false, home.Create(ctx, newSecret(o.Namespace, o.Name, p.target.UID, p.access), client.DryRunAll)
	}
	noted := p.known.Own.DeepCopy()
	annotate(noted, p.target.UID, p.access)
	if p.verdict.Action != updated || maps.Equal(noted.Annotations, p.known.Own.Annotations) {
		return false, nil
	}
	p.known.Own = noted
	return true, home.Update(ctx, noted)
}

// addSecret does what was decided about the Secret, with a token if it needs one. What is wanted is noted already.
func (o Onboarder) addSecret(ctx context.Context, home client.Client, a AddOptions, p intent,
	what string, r *Report) error {
	if p.verdict.Action == unchanged {
		r.line("home", what, "%s, %s", unchanged, ends(p.known.Held))
		r.note(p.verdict.Why)
		return nil
	}
	secret := newSecret(o.Namespace, o.Name, p.target.UID, p.access)
	held := p.known.Held
	if p.known.Own != nil {
		secret = p.known.Own.DeepCopy()
	}
	var err error
	switch {
	case p.verdict.NewToken:
		err = o.renewSecret(ctx, home, secret, p.target, a.Lifetime, r)
	case held.Refused == nil && !sameWay(held.target, p.target):
		err = o.writeSecret(ctx, home, secret, p.target, held.token, requested(secret), r)
	}
	if err != nil {
		return err
	}
	r.Changed = true
	r.secret(what, p.verdict)
	return nil
}

// secret adds what becomes of the Secret.
func (r *Report) secret(what string, v verdict) {
	r.line("home", what, "%s", v.Action)
	if v.Why != "" {
		r.note(fmt.Sprintf("%s %s: %s", v.Action, what, v.Why))
	}
}

func (r *Report) note(text string) {
	if text != "" {
		r.Notes = append(r.Notes, text)
	}
}

func ends(h Held) string {
	if h.Expires.IsZero() {
		return "no end of its credentials is known"
	}
	return "expires " + stamp(h.Expires)
}

// groups of kinds, as a report names them.
var groups = []struct {
	name  string
	kinds []string
}{
	{"namespace " + accountNamespace, []string{kindNamespace}},
	{"API of Ats", []string{kindCRD}},
	{"service account " + accountName, []string{kindAccount}},
	{"roles and bindings", []string{kindClusterRole, kindRole, kindClusterBinding, kindBinding}},
	{"policies", []string{kindPolicy, kindPolicyBinding}},
}

// summarize says in a few lines what becomes of many objects.
func summarize(cluster string, steps []step) (r Report) {
	for _, g := range groups {
		count := map[action]int{}
		for _, s := range steps {
			if slices.Contains(g.kinds, s.Object.GetKind()) {
				count[s.Action]++
			}
		}
		var done []string
		for _, a := range []action{created, updated, unchanged, deleted, left} {
			if n := count[a]; n > 0 {
				done = append(done, fmt.Sprintf("%d %s", n, a))
			}
		}
		if len(done) > 0 {
			r.line(cluster, g.name, "%s", strings.Join(done, ", "))
		}
	}
	var why []string
	named := map[string][]string{}
	for _, s := range steps {
		r.Changed = r.Changed || s.Action == created || s.Action == updated || s.Action == deleted
		if s.Note == "" {
			continue
		}
		text := fmt.Sprintf("%s (%s)", s.Action, s.Note)
		if named[text] == nil {
			why = append(why, text)
		}
		named[text] = append(named[text], idOf(s.Object).String())
	}
	for _, text := range why {
		r.note(fmt.Sprintf("%s: %s", text, few(named[text])))
	}
	return r
}

// Manifests returns the objects that Add applies to the workload cluster, and the Secret without its token. It
// makes no request.
func (o Onboarder) Manifests(a AddOptions) ([]*unstructured.Unstructured, *corev1.Secret, error) {
	access, err := a.Wish.of(nil)
	if err != nil {
		return nil, nil, err
	}
	objects, err := objectsFor(access)
	if err != nil {
		return nil, nil, err
	}
	target, err := targetOf(o.Workload, a.Server)
	if err != nil {
		return nil, nil, err
	}
	secret, err := template(o.Namespace, o.Name, target, access)
	return objects, secret, err
}
