package onboard

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/tenure-dev/tenure/pkg/clusterhealth"
	"github.com/tenure-dev/tenure/pkg/console"
	"github.com/tenure-dev/tenure/pkg/kubeconfig"
	"github.com/tenure-dev/tenure/pkg/text"
)

// probe is all that a check found out.
type probe struct {
	Name string
	Now  time.Time
	Held Held
	// Deleting is why replicas let go of the cluster, nil if they don't.
	Deleting error
	// Access that the cluster was added with.
	Access Access
	// Reason and Note are what the cluster answers; see package clusterhealth.
	Reason, Note string
	// Astray says that they lead to another cluster.
	Astray bool
	// API is why the API of Ats isn't the one that the replicas need.
	API error
	// Limits are those that the Secret gives its cluster, in words, "" for none; BadLimits is why they can't be used.
	Limits    string
	BadLimits error
	// Asked are the rights that the replicas need, and Missing those of them that they lack. Unasked is why that
	// couldn't be found out.
	Asked, Missing []Right
	Unasked        error
	// OthersHome reports whether its service account is that of another fleet's replicas, of which the cluster is the
	// home.
	OthersHome bool
	Fleet      console.Fleet
	// Reported is what replicas say of the cluster.
	Reported []console.Answer
}

// Finding is the outcome of one check.
type Finding struct {
	Check string `json:"check"`
	OK    bool   `json:"ok"`
	Says  string `json:"says"`
}

// Examination is the answer of tenure cluster check.
type Examination struct {
	Cluster  string    `json:"cluster"`
	Server   string    `json:"server,omitempty"`
	OK       bool      `json:"ok"`
	Findings []Finding `json:"findings"`
	// Missing are the rights that the replicas lack.
	Missing []Right `json:"missing,omitempty"`
}

// Check asks the cluster with the credentials of its Secret for all that replicas need.
func (o Onboarder) Check(ctx context.Context, wish Wish) (Examination, error) {
	p := probe{Name: o.Name}
	home, err := o.home()
	if err != nil {
		return Examination{}, err
	}
	known, err := o.readSecrets(ctx, home)
	if err != nil {
		return Examination{}, err
	}
	if known.Own == nil {
		return Examination{}, o.unknown(known)
	}
	p.Reason, p.Note = known.Reason, known.Note
	p.hold(known.Own)
	if p.Access, err = wish.of(known.Own); err != nil {
		return Examination{}, err
	}
	snapshot, err := o.snapshot(ctx, false)
	if err != nil {
		return Examination{}, err
	}
	p.assess(snapshot, known.UID)
	if p.Reason == clusterhealth.ReasonUsable {
		config, err := kubeconfig.Connection(known.Own, kubeconfig.Policy{})
		if err != nil {
			return Examination{}, err
		}
		if err := p.ask(ctx, config, known.elsewhere(ctx, home)); err != nil {
			return Examination{}, err
		}
	}
	if p.Reported, err = console.ReportsAbout(ctx, home, snapshot, known.Own); err != nil {
		p.Reported = nil // without the right to read events, only the records count
	}
	p.Now = time.Now()
	return examine(p), nil
}

// assess judges the fleet, with the UID of the cluster that the credentials lead to. Another cluster isn't asked what
// this one should have.
func (p *probe) assess(s console.Snapshot, uid string) {
	for i := range s.Clusters {
		if string(s.Clusters[i].Cluster) == p.Name {
			s.Clusters[i].UID = uid
		}
	}
	p.Fleet = console.Assess(s)
	if c := p.Fleet.Cluster(p.Name); c.Astray() {
		p.Reason, p.Note, p.Astray = c.Reason, c.Note, true
	}
}

// hold notes what the Secret says of its cluster.
func (p *probe) hold(own *corev1.Secret) {
	p.Held, p.Deleting = asReplicasRead(own), deleting(own)
	p.Limits, p.BadLimits = limits(own)
}

// asReplicasRead returns what replicas read in a Secret. They don't read one without the label.
func asReplicasRead(s *corev1.Secret) Held {
	h := Hold(s)
	if err := unlabelled(s); err != nil && !h.broken() {
		h.Refused = err
	}
	return h
}

// unlabelled returns an error if replicas don't read the Secret because of its label.
func unlabelled(s *corev1.Secret) error {
	if value := s.Labels[kubeconfig.Label]; value != "true" {
		return fmt.Errorf("label %s is %q, so replicas don't read the Secret: kubectl -n %s label --overwrite secret "+
			"%s %[1]s=true",
			kubeconfig.Label, value, s.Namespace, s.Name)
	}
	return nil
}

// limits returns the limits that the Secret itself sets.
func limits(secret *corev1.Secret) (words string, err error) {
	own, err := kubeconfig.LimitsOf(secret, kubeconfig.Limits{})
	if err != nil || own == (kubeconfig.Limits{}) {
		return "", err
	}
	if _, rate := secret.Annotations[kubeconfig.QPSAnnotation]; own.Burst > 0 && !rate {
		words = fmt.Sprintf("; a burst of %d, where replicas have --cluster-qps", own.Burst)
	}
	return "a replica sends " + own.String() + words, nil
}

// add adds a finding.
func (e *Examination) add(check string, ok bool, format string, args ...any) {
	e.Findings = append(e.Findings, Finding{check, ok, fmt.Sprintf(format, args...)})
}

// examine judges a probe.
func examine(p probe) Examination {
	e := Examination{Cluster: p.Name, Server: p.Held.Server, Missing: p.Missing}
	s := serving(p.Fleet, p.Name)
	if p.Deleting != nil {
		e.add("removal", false, "%v", p.Deleting)
	}
	e.addKubeconfig(p, s)
	if p.Reason == clusterhealth.ReasonUsable {
		e.addAPI(p)
	}
	if p.Limits != "" || p.BadLimits != nil {
		e.add("limits", p.BadLimits == nil, "%s", orElse(p.BadLimits, p.Limits))
	}
	if s.Complete || p.Astray {
		e.add("shards", s.Complete && len(s.Unfit) == 0 && s.Trouble == "", "%s", s)
	} else {
		e.add("shards", false, "%s", obstacle(p.Fleet, p.Name, p.Reported))
	}
	e.OK = true
	for _, f := range e.Findings {
		e.OK = e.OK && f.OK
	}
	return e
}

// addKubeconfig adds whether replicas accept the kubeconfig, and what it leads to if so.
func (e *Examination) addKubeconfig(p probe, s Service) {
	cluster := p.Fleet.Cluster(p.Name)
	said := slices.IndexFunc(p.Reported, func(a console.Answer) bool {
		return string(a.Cluster) == p.Name && a.Reason != clusterhealth.ReasonUsable
	})
	switch {
	case p.Held.broken():
		e.add("kubeconfig", false, "%v", p.Held.Refused)
	case p.Astray:
		e.add("kubeconfig", false, "%s: %s", p.Reason, p.Note)
	case p.Held.Refused != nil && said >= 0:
		e.add("kubeconfig", false, "a replica says %s: %s", p.Reported[said].Reason, p.Reported[said].Note)
	case p.Held.Refused != nil:
		e.add("kubeconfig", true, "no replica complains of it, and it isn't used from here: %v", p.Held.Refused)
	case cluster.Fails(): // because of their flags, or they serve the cluster by the kubeconfig before
		e.add("kubeconfig", false, "a replica says %s: %s", cluster.Reason, cluster.Note)
	default:
		e.add("kubeconfig", true, "replicas accept it")
		e.addConnection(p, s, said)
	}
}

// addConnection adds whether the server answers, and whether the credentials are good for long enough. said is the
// index of what a replica reports of the cluster, below 0 for none.
func (e *Examination) addConnection(p probe, s Service, said int) {
	fromReplicas := p.Reason == clusterhealth.ReasonUnreachable && s.Complete && p.Fleet.Cluster(p.Name).Served()
	switch {
	case p.Reason == clusterhealth.ReasonUsable:
		e.add("server", true, "answers")
	case fromReplicas && said < 0:
		e.add("server", true, "can't be reached from here, so rights couldn't be asked for; replicas serve all of it")
	case fromReplicas:
		e.add("server", false, "a replica says %s: %s", p.Reported[said].Reason, p.Reported[said].Note)
	default:
		e.add("server", false, "%s: %s", p.Reason, p.Note)
	}
	e.add("credentials", !soon(p.Held, p.Now), "%s", expiry(p.Held, p.Now, p.Name))
}

// addAPI adds what the cluster answered: whether it has what replicas need.
func (e *Examination) addAPI(p probe) {
	e.add("API of Ats", p.API == nil, "%s", orElse(p.API, "as this program needs it"))
	switch {
	case p.Unasked != nil:
		e.add("rights", false, "couldn't be asked for: %v", p.Unasked)
	case len(p.Missing) > 0:
		e.add("rights", false, "%d of %d are missing: tenure cluster add gives them", len(p.Missing), len(p.Asked))
	default:
		e.add("rights", true, "all %d for %s", len(p.Asked), describe(p.Access))
	}
	if p.OthersHome {
		e.add("home", false, "the cluster is another fleet's home, and its token is of that fleet's service account: tenure "+
			"cluster remove %s, without --kubeconfig; %s", p.Name, fleetIsGone)
	}
}

func orElse(err error, text string) string {
	if err != nil {
		return err.Error()
	}
	return text
}

func describe(a Access) string {
	what := text.Join(a.Roles, ",")
	switch len(a.Namespaces) {
	case 0:
	case 1:
		what += ", in namespace " + a.Namespaces[0]
	default:
		what += ", in namespaces " + strings.Join(a.Namespaces, ", ")
	}
	return what
}

// soon reports whether credentials have expired or should have been renewed.
func soon(h Held, now time.Time) bool { return kubeconfig.EndSoon(h.issued, h.Expires, now) }

func expiry(h Held, now time.Time, name string) string {
	if h.Expires.IsZero() {
		return ends(h)
	}
	text := "expired " + stamp(h.Expires)
	if h.Expires.After(now) {
		text = fmt.Sprintf("expires %s, in %s", stamp(h.Expires), span(h.Expires.Sub(now).Truncate(time.Second)))
	}
	switch {
	case h.immutable != nil:
		text += ": " + h.immutable.Error()
	case !soon(h, now) && h.Renewed:
		text += "; the fleet renews them before"
	case !soon(h, now):
		text += "; the fleet doesn't renew them: it didn't ask for them"
	case h.Renewed && h.Expires.After(now):
		text += ", and the fleet should have renewed them: see the events of the Secret; tenure cluster rotate " + name +
			" renews them by hand"
	default:
		text += ": tenure cluster rotate " + name
	}
	return text
}
