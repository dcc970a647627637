package onboard

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	cnatv1alpha1 "github.com/tenure-dev/tenure/pkg/apis/cnat/v1alpha1"
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
	Told       []console.Answer
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
	if p.Told, err = console.ToldOf(ctx, home, snapshot, known.Own); err != nil {
		p.Told = nil // without the right to read events, only the records count
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

// apiDiffers returns an error if the cluster serves another API of Ats than that of the manifests. It reads the
// published schema, which every authenticated user may.
func apiDiffers(ctx context.Context, config *rest.Config, objects []*unstructured.Unstructured) error {
	kinds, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return fmt.Errorf("asking for the kinds: %w", err)
	}
	version := cnatv1alpha1.GroupVersion
	if _, err := kinds.ServerResourcesForGroupVersionWithContext(ctx, version.String()); apierrors.IsNotFound(err) {
		return fmt.Errorf("the cluster doesn't serve %s: tenure cluster add installs it", version)
	} else if err != nil {
		return fmt.Errorf("asking for the kinds of %s: %w", version, err)
	}
	raw, err := schemaOfAts(ctx, kinds)
	if err != nil {
		return err
	}
	return schemaDiffers(raw, objects)
}

// schemaOfAts reads the published schema of Ats.
func schemaOfAts(ctx context.Context, kinds *discovery.DiscoveryClient) ([]byte, error) {
	version := cnatv1alpha1.GroupVersion
	raw, err := kinds.RESTClient().Get().AbsPath("/openapi/v3/apis", version.Group, version.Version).
		SetHeader("Accept", "application/json").Do(ctx).Raw()
	if err != nil {
		return nil, fmt.Errorf("reading the schema of %s: %w", version, err)
	}
	return raw, nil
}

// schemaDiffers compares the published schema of Ats with that of the CustomResourceDefinition.
func schemaDiffers(raw []byte, objects []*unstructured.Unstructured) error {
	var published struct {
		Components struct {
			Schemas map[string]map[string]any `json:"schemas"`
		} `json:"components"`
	}
	if err := json.Unmarshal(raw, &published); err != nil {
		return fmt.Errorf("the published schema can't be read: %w", err)
	}
	for _, o := range objects {
		if o.GetKind() != kindCRD {
			continue
		}
		kind, _, _ := unstructured.NestedString(o.Object, "spec", "names", "kind")
		versions, _, err := unstructured.NestedSlice(o.Object, "spec", "versions")
		if err != nil || len(versions) != 1 {
			return fmt.Errorf("CustomResourceDefinition %s has %d versions, this program compares one",
				o.GetName(), len(versions))
		}
		want, _, err := unstructured.NestedMap(versions[0].(map[string]any), "schema", "openAPIV3Schema", "properties")
		if err != nil {
			return fmt.Errorf("CustomResourceDefinition %s: %w", o.GetName(), err)
		}
		var got map[string]any
		for name, schema := range published.Components.Schemas {
			if strings.HasSuffix(name, "."+kind) {
				got, _, _ = unstructured.NestedMap(schema, "properties")
			}
		}
		for _, part := range []string{"spec", "status"} {
			if at := missing("."+part, normalized(got[part]), normalized(want[part])); at != "" {
				return fmt.Errorf("the cluster's %s differs from this program's at %s: tenure cluster add updates it, "+
					"if this program isn't the older one", kind, strings.ReplaceAll(at, ".properties.", "."))
			}
		}
	}
	return nil
}

// normalized returns a schema with all numbers of one type and without descriptions.
func normalized(schema any) any {
	switch schema := schema.(type) {
	case map[string]any:
		clean := map[string]any{}
		for key, value := range schema {
			if _, text := value.(string); key == "description" && text {
				continue
			}
			clean[key] = normalized(value)
		}
		return clean
	case []any:
		clean := make([]any, len(schema))
		for i := range schema {
			clean[i] = normalized(schema[i])
		}
		return clean
	case int64:
		return float64(schema)
	}
	return schema
}

// examine judges a probe.
func examine(p probe) Examination {
	e := Examination{Cluster: p.Name, Server: p.Held.Server, Missing: p.Missing}
	add := func(check string, ok bool, format string, args ...any) {
		e.Findings = append(e.Findings, Finding{check, ok, fmt.Sprintf(format, args...)})
	}
	usable, s := p.Reason == clusterhealth.ReasonUsable, serving(p.Fleet, p.Name)
	cluster := p.Fleet.Cluster(p.Name)
	said := slices.IndexFunc(p.Told, func(a console.Answer) bool {
		return string(a.Cluster) == p.Name && a.Reason != clusterhealth.ReasonUsable
	})
	if p.Deleting != nil {
		add("removal", false, "%v", p.Deleting)
	}
	switch {
	case p.Held.broken():
		add("kubeconfig", false, "%v", p.Held.Refused)
	case p.Astray:
		add("kubeconfig", false, "%s: %s", p.Reason, p.Note)
	case p.Held.Refused != nil && said >= 0:
		add("kubeconfig", false, "a replica says %s: %s", p.Told[said].Reason, p.Told[said].Note)
	case p.Held.Refused != nil:
		add("kubeconfig", true, "no replica complains of it, and it isn't used from here: %v", p.Held.Refused)
	case cluster.Fails(): // because of their flags, or they serve the cluster by the kubeconfig before
		add("kubeconfig", false, "a replica says %s: %s", cluster.Reason, cluster.Note)
	default:
		add("kubeconfig", true, "replicas accept it")
		fromReplicas := p.Reason == clusterhealth.ReasonUnreachable && s.Complete && cluster.Served()
		switch {
		case usable:
			add("server", true, "answers")
		case fromReplicas && said < 0:
			add("server", true, "can't be reached from here, so rights couldn't be asked for; replicas serve all of it")
		case fromReplicas:
			add("server", false, "a replica says %s: %s", p.Told[said].Reason, p.Told[said].Note)
		default:
			add("server", false, "%s: %s", p.Reason, p.Note)
		}
		add("credentials", !soon(p.Held, p.Now), "%s", expiry(p.Held, p.Now, p.Name))
	}
	if usable {
		add("API of Ats", p.API == nil, "%s", orElse(p.API, "as this program needs it"))
		switch {
		case p.Unasked != nil:
			add("rights", false, "couldn't be asked for: %v", p.Unasked)
		case len(p.Missing) > 0:
			add("rights", false, "%d of %d are missing: tenure cluster add gives them", len(p.Missing), len(p.Asked))
		default:
			add("rights", true, "all %d for %s", len(p.Asked), describe(p.Access))
		}
		if p.OthersHome {
			add("home", false, "the cluster is another fleet's home, and its token is of that fleet's service account: tenure "+
				"cluster remove %s, without --kubeconfig; %s", p.Name, fleetIsGone)
		}
	}
	if p.Limits != "" || p.BadLimits != nil {
		add("limits", p.BadLimits == nil, "%s", orElse(p.BadLimits, p.Limits))
	}
	if s.Complete || p.Astray {
		add("shards", s.Complete && len(s.Unfit) == 0 && s.Trouble == "", "%s", s)
	} else {
		add("shards", false, "%s", obstacle(p.Fleet, p.Name, p.Told))
	}
	e.OK = true
	for _, f := range e.Findings {
		e.OK = e.OK && f.OK
	}
	return e
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
