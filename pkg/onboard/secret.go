package onboard

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/tenure-dev/tenure/pkg/clusterhealth"
	"github.com/tenure-dev/tenure/pkg/kubeconfig"
	"github.com/tenure-dev/tenure/pkg/text"
)

// Annotations of a cluster's Secret.
const (
	// namespacesAnnotation, with [kubeconfig.RolesAnnotation], is the [Access] that the cluster was added with. It has the
	// namespaces, separated by commas.
	namespacesAnnotation = "tenure.dev/cluster-namespaces"
	// SumAnnotation is the SHA-256 of a kubeconfig whose token was requested by a command here, or by the fleet. The
	// fleet renews the token of such a kubeconfig. If somebody else writes the kubeconfig, the sum differs, and the
	// token is theirs to renew.
	SumAnnotation = "tenure.dev/kubeconfig-sha256"
)

// CheckName refuses what can't be a cluster's name.
func CheckName(name string) error {
	if name == "" {
		return errors.New(`NAME "": must not be empty`)
	}
	if name == kubeconfig.HomeName {
		return errors.New(`NAME "home": replicas call the home cluster so: choose another name`)
	}
	if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
		return fmt.Errorf("NAME %q: %s", name, strings.Join(problems, "; "))
	}
	return nil
}

// target is a workload cluster as replicas reach it.
type target struct {
	Server        string
	CA            []byte // PEM; empty means the system's authorities
	TLSServerName string
	UID           string // of its namespace kube-system
}

// adminsOnly says why replicas can't reach a cluster as an admin does.
type adminsOnly struct{ why string }

func (e *adminsOnly) Error() string { return e.why }

// targetOf returns how replicas reach the cluster of an admin's connection. server, unless it is "", replaces its
// address. The error is an adminsOnly if replicas may still reach it in a way that they know already.
func targetOf(admin *rest.Config, server string) (target, error) {
	c := rest.CopyConfig(admin)
	if c.Insecure {
		return target{}, &adminsOnly{"--kubeconfig: insecure-skip-tls-verify is set for this cluster, and replicas verify " +
			"whom they give a token: set certificate-authority-data instead"}
	}
	if c.Proxy != nil && server == "" {
		return target{}, &adminsOnly{"--kubeconfig: proxy-url is set for this cluster, and replicas aren't given a proxy: " +
			"say by --server at which address they reach it, or make the Secret by hand, for replicas with " +
			"--kubeconfig-allow=proxy"}
	}
	if err := rest.LoadTLSFiles(c); err != nil {
		return target{}, fmt.Errorf("--kubeconfig: reading its certificates: %w", err)
	}
	t := target{Server: strings.TrimRight(c.Host, "/"), CA: c.CAData, TLSServerName: c.ServerName}
	if server != "" {
		t.Server = strings.TrimRight(server, "/")
	}
	if _, err := t.kubeconfig("cluster", "token"); err != nil { // before anything is touched
		return target{}, fmt.Errorf("--kubeconfig or --server can't be used by replicas: %w", err)
	}
	return t, nil
}

// authority returns the CA by which an admin's connection verifies the cluster, empty for the system's authorities. It
// isn't ok if there is none, as where it verifies nothing.
func authority(admin *rest.Config) (ca []byte, ok bool) {
	if admin == nil || admin.Insecure {
		return nil, false
	}
	c := rest.CopyConfig(admin)
	err := rest.LoadTLSFiles(c)
	return c.CAData, err == nil
}

// CheckServer refuses an address at which no replica could reach a cluster.
func CheckServer(server string) error {
	if _, err := (target{Server: strings.TrimRight(server, "/")}).kubeconfig("cluster", "token"); err != nil {
		return fmt.Errorf("--server %q: must be https://HOST:PORT", server)
	}
	return nil
}

// asBefore returns the target in the cluster's own Secret, since an admin often reaches a cluster in another way
// than replicas do. It returns t if there is no such target, if it has the same address, or if it leads to another
// cluster. unfit is why replicas can't reach the cluster as the admin does, nil if they can.
func (t target) asBefore(k clusterSecrets, unfit *adminsOnly) (target, error) {
	if k.Own != nil && t.UID != "" && cmp.Or(k.UID, k.Own.Annotations[kubeconfig.UIDAnnotation]) == t.UID {
		before := k.way()
		before.UID = t.UID
		refused := k.Held.Refused != nil
		if !refused && (unfit != nil || !sameServer(before.Server, t.Server)) { // else certificates may be new
			return before, nil
		}
	}
	if unfit != nil {
		return target{}, unfit
	}
	return t, nil
}

// replaced notes that the address of a Secret that couldn't be used was replaced by the admin's.
func (t target) replaced(name string) string {
	return fmt.Sprintf("the kubeconfig before couldn't be used, so replicas now reach the cluster at the address of "+
		"--kubeconfig, %s: if theirs is another, run tenure cluster add %s --server", t.Server, name)
}

// kubeconfig returns the text for the Secret, or an error if replicas wouldn't accept it.
func (t target) kubeconfig(name, token string) ([]byte, error) {
	text, err := t.write(name, token)
	if err != nil {
		return nil, err
	}
	if _, err := kubeconfig.Inspect(text, kubeconfig.Policy{}); err != nil {
		return nil, err
	}
	return text, nil
}

func (t target) write(name, token string) ([]byte, error) {
	c := clientcmdapi.NewConfig()
	c.Clusters[name] = &clientcmdapi.Cluster{Server: t.Server, CertificateAuthorityData: t.CA,
		TLSServerName: t.TLSServerName}
	c.AuthInfos[accountName] = &clientcmdapi.AuthInfo{Token: token}
	c.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: accountName}
	c.CurrentContext = name
	text, err := clientcmd.Write(*c)
	if err != nil {
		return nil, errors.New("the kubeconfig can't be written") // the error could quote the token
	}
	return text, nil
}

// newSecret returns the Secret of a cluster, with no kubeconfig in it yet.
func newSecret(namespace, name, uid string, a Access) *corev1.Secret {
	s := &corev1.Secret{Type: corev1.SecretTypeOpaque}
	s.Namespace, s.Name = namespace, name
	annotate(s, uid, a)
	return s
}

// annotate records which cluster the Secret is for, and what the fleet may do there.
func annotate(s *corev1.Secret, uid string, a Access) {
	metav1.SetMetaDataLabel(&s.ObjectMeta, kubeconfig.Label, "true")
	if uid != "" {
		metav1.SetMetaDataAnnotation(&s.ObjectMeta, kubeconfig.UIDAnnotation, uid)
	}
	metav1.SetMetaDataAnnotation(&s.ObjectMeta, kubeconfig.RolesAnnotation, text.Join(a.Roles, ","))
	delete(s.Annotations, namespacesAnnotation)
	if len(a.Namespaces) > 0 {
		metav1.SetMetaDataAnnotation(&s.ObjectMeta, namespacesAnnotation, strings.Join(a.Namespaces, ","))
	}
}

// fill puts a kubeconfig into the Secret. byUs says that its token was requested here, which is recorded.
func fill(s *corev1.Secret, text []byte, byUs bool) {
	if s.Data == nil {
		s.Data = map[string][]byte{}
	}
	s.Data[kubeconfig.Key] = text
	delete(s.Annotations, SumAnnotation)
	if byUs {
		metav1.SetMetaDataAnnotation(&s.ObjectMeta, SumAnnotation, sum(text))
	}
}

func sum(text []byte) string {
	digest := sha256.Sum256(text)
	return hex.EncodeToString(digest[:])
}

// requested reports whether the Secret's token is one that was requested here, and that nobody has replaced since.
func requested(s *corev1.Secret) bool {
	return s.Annotations[SumAnnotation] == sum(s.Data[kubeconfig.Key])
}

// accessOf returns what the cluster was added with; ok is false for a Secret that doesn't say.
func accessOf(s *corev1.Secret) (a Access, ok bool) {
	roles, err := ParseRoles(kubeconfig.RolesOf(s))
	return Access{Roles: roles, Namespaces: split(s.Annotations[namespacesAnnotation])}, err == nil
}

func split(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(text, ",")
}

// Held is what a Secret holds, as far as it can be shown.
type Held struct {
	Server string
	// Expires is when the credentials expire, zero if they never do or don't say.
	Expires time.Time
	// Renewed reports whether the fleet renews the credentials by itself.
	Renewed bool
	// issued is when the token was issued, zero if it doesn't say.
	issued time.Time
	// immutable is why nobody can renew the credentials, nil if they can be replaced.
	immutable error
	// token and target are those of the kubeconfig.
	token  string
	target target
	// Refused is why the kubeconfig isn't used from here.
	Refused error
}

// broken reports whether replicas can't use the Secret either, whatever their --kubeconfig-allow says.
func (h Held) broken() bool { return h.Refused != nil && !kubeconfig.Allowable(h.Refused) }

// Hold reads a Secret.
func Hold(s *corev1.Secret) Held { return hold(s, kubeconfig.Policy{}) }

func hold(s *corev1.Secret, policy kubeconfig.Policy) Held {
	c, err := kubeconfig.Connection(s, policy)
	if err != nil {
		return Held{Refused: err}
	}
	h := Held{Server: c.Host, token: c.BearerToken,
		target: target{Server: c.Host, CA: c.CAData, TLSServerName: c.ServerName}}
	h.Expires = kubeconfig.Expiry(c)
	h.issued, _ = kubeconfig.TokenLife(c.BearerToken)
	h.immutable = immutable(s)
	h.Renewed = requested(s) && h.immutable == nil && !h.issued.IsZero() && h.Expires.After(h.issued)
	return h
}

// verdict says what has to be done to a cluster's Secret.
type verdict struct {
	Action action
	// NewToken reports whether a new token is needed, even if the Secret has one. Why is the reason for the action.
	NewToken bool
	Why      string
}

// clusterSecrets are the Secrets of the fleet's namespace that matter for a cluster.
type clusterSecrets struct {
	// Own is the Secret of the cluster's name, nil if there is none, and Held what it holds. That stays the same if other
	// annotations than [SumAnnotation] change. Others are the Secrets of other clusters.
	Own    *corev1.Secret
	Held   Held
	Others []corev1.Secret
	// Reason and Note are what the cluster answers to the credentials in Own; see package clusterhealth.
	Reason, Note string
	// UID is that of the cluster that the credentials in Own lead to. If that refuses them, it is of the one that replicas
	// serve by the name. It is "" if that isn't known, either.
	UID string
	// NewCA is the CA of the admin's connection if it verifies the server in Own, and the CA in Own doesn't: Reason and
	// Note are what that server answered then. Otherwise it is empty.
	NewCA []byte
}

// unfit returns why the cluster of that UID can't be reached by its own Secret; nil if it can, as far as is known.
func (k clusterSecrets) unfit(uid string) error {
	if k.Held.broken() {
		return fmt.Errorf("replicas don't use what it holds: %w", k.Held.Refused)
	}
	if k.UID != "" && uid != "" && k.UID != uid {
		return fmt.Errorf("it leads to another cluster: the UID of its namespace kube-system is %s, not %s", k.UID, uid)
	}
	return nil
}

// way returns how replicas reach the cluster by its own Secret, with the CA that verifies the server now.
func (k clusterSecrets) way() target {
	t := k.Held.target
	if len(k.NewCA) > 0 {
		t.CA = k.NewCA
	}
	return t
}

// trust says that the CA in the cluster's own Secret is replaced by that of the admin's connection, or stays although
// it is another; "" if neither. t is how replicas will reach the cluster.
func (k clusterSecrets) trust(t target, admin *rest.Config) string {
	const field = "clusters[].cluster.certificate-authority-data"
	ca, ok := authority(admin)
	switch {
	case len(k.NewCA) > 0 && sameCA(t.CA, k.NewCA):
		return fmt.Sprintf("Secret %s/%s: that of --kubeconfig takes the place of %s, which doesn't verify %s any more",
			k.Own.Namespace, k.Own.Name, field, t.Server)
	case ok && !sameCA(t.CA, ca):
		return fmt.Sprintf("Secret %s/%s: %s stays, by which replicas verify %s, though that of --kubeconfig is another: if "+
			"this server has a new authority, tenure cluster add %[2]s --server %[4]s takes that of --kubeconfig",
			k.Own.Namespace, k.Own.Name, field, t.Server)
	}
	return ""
}

// judgeSecret decides what to do so that the Secret is that of the target. It returns an error if that would take
// the Secret from another cluster, or add a cluster twice.
func judgeSecret(namespace, name string, t target, a Access, k clusterSecrets, now time.Time) (verdict, error) {
	for i := range k.Others {
		other := &k.Others[i]
		if field, value := same(other, t); field != "" {
			return verdict{}, fmt.Errorf("Secret %s/%s: %s is %s: it is the same cluster, and its objects would be worked on "+
				"twice: use the name %[2]s, or first run tenure cluster remove %[2]s", namespace, other.Name, field, value)
		}
	}
	if k.Own == nil {
		return verdict{Action: created, NewToken: true}, nil
	}
	if value := k.Own.Labels[kubeconfig.Label]; value != "true" {
		return verdict{}, fmt.Errorf("Secret %s/%s: label %s is %q, so it is no cluster's and not ours to overwrite: choose "+
			"another NAME, or delete it", namespace, name, kubeconfig.Label, value)
	}
	if err := deleting(k.Own); err != nil {
		return verdict{}, err
	}
	if err := k.whose(t); err != nil {
		return verdict{}, fmt.Errorf("%w: choose another NAME, or first run tenure cluster remove %s", err, name)
	}
	next := k.Own.DeepCopy()
	annotate(next, t.UID, a)
	v := verdict{Action: unchanged}
	if !maps.Equal(next.Annotations, k.Own.Annotations) {
		v = verdict{Action: updated, Why: "what it says of the cluster"}
	}
	switch unfit := k.unfit(t.UID); {
	case unfit != nil:
		v = verdict{updated, true, unfit.Error()}
	case k.Held.Refused != nil: // somebody put it there, for replicas that may do more
		v.Why = strings.TrimPrefix(v.Why+"; the kubeconfig in it stays, which replicas use if they may: "+
			k.Held.Refused.Error(), "; ")
	case !k.Held.Expires.IsZero() && !k.Held.Expires.After(now):
		v = verdict{updated, true, "its credentials expired at " + stamp(k.Held.Expires)}
	case k.Reason == clusterhealth.ReasonRefused:
		v = verdict{updated, true, "its credentials are refused: " + k.Note}
	case !sameWay(k.Held.target, t):
		v = verdict{updated, k.Held.token == "", "the way to the cluster"}
	}
	return v, nil
}

// deleting returns an error if the Secret is being deleted: replicas let go of its cluster, though a finalizer may hold
// the Secret for long.
func deleting(s *corev1.Secret) error {
	if s.DeletionTimestamp.IsZero() {
		return nil
	}
	return fmt.Errorf("Secret %s/%s is being deleted: when it is gone, tenure cluster add %[2]s adds the cluster again",
		s.Namespace, s.Name)
}

// immutable returns an error if nobody may change what the Secret holds.
func immutable(s *corev1.Secret) error {
	if s.Immutable == nil || !*s.Immutable {
		return nil
	}
	return fmt.Errorf("Secret %s/%s is immutable, so no credentials can be put into it: tenure cluster remove %[2]s, and "+
		"then add, makes it anew", s.Namespace, s.Name)
}

// after changes the verdict where the steps make the replicas' service account anew: tokens of the one before are dead,
// though the cluster, which may be out of reach from here, didn't say so.
func (v verdict) after(steps []step, own *corev1.Secret) verdict {
	anew := slices.ContainsFunc(steps, func(s step) bool {
		return s.Action == created && s.Object.GetKind() == kindAccount
	})
	if v.NewToken || own == nil || !requested(own) || !anew {
		return v
	}
	return verdict{updated, true, "the service account that its token was for is gone"}
}

// same returns the field by which a Secret is known to be the target's, and its value; "" if it isn't.
func same(s *corev1.Secret, t target) (field, value string) {
	if uid := s.Annotations[kubeconfig.UIDAnnotation]; uid != "" {
		if uid == t.UID {
			return "annotation " + kubeconfig.UIDAnnotation, uid
		}
		return "", ""
	}
	if held := Hold(s); held.Refused == nil && sameServer(held.Server, t.Server) {
		return "clusters[].cluster.server", held.Server
	}
	return "", ""
}

// whose returns an error if the Secret of the cluster's name is another cluster's.
func (k clusterSecrets) whose(t target) error {
	secret := fmt.Sprintf("Secret %s/%s", k.Own.Namespace, k.Own.Name)
	uid, by := k.Own.Annotations[kubeconfig.UIDAnnotation], "annotation "+kubeconfig.UIDAnnotation
	if uid == "" && k.Reason == clusterhealth.ReasonUsable { // otherwise k.UID is what replicas go by, which may be older
		uid, by = k.UID, "the UID of namespace kube-system where it leads"
	}
	switch {
	case uid != "" && t.UID != "" && uid != t.UID:
		return fmt.Errorf("%s: %s is %s, the cluster at %s has %s, so it is another cluster", secret, by, uid, t.Server,
			t.UID)
	case uid != "":
		return nil
	case k.Held.Refused != nil:
		return fmt.Errorf("%s doesn't say which cluster it is of: %w", secret, k.Held.Refused)
	case !sameServer(k.Held.Server, t.Server):
		return fmt.Errorf("%s: clusters[].cluster.server is %s, not %s, and no annotation %s says that it is the same "+
			"cluster", secret, k.Held.Server, t.Server, kubeconfig.UIDAnnotation)
	}
	return nil
}

func sameServer(a, b string) bool {
	return strings.EqualFold(strings.TrimRight(a, "/"), strings.TrimRight(b, "/"))
}

func sameWay(a, b target) bool {
	return sameServer(a.Server, b.Server) && sameCA(a.CA, b.CA) && a.TLSServerName == b.TLSServerName
}

func sameCA(a, b []byte) bool { return bytes.Equal(bytes.TrimSpace(a), bytes.TrimSpace(b)) }

// template returns the Secret without a token. The text in the token's place has spaces. If it is ever applied,
// replicas refuse it with an error that names the token, and keep what they have.
func template(namespace, name string, t target, a Access) (*corev1.Secret, error) {
	text, err := t.write(name, "(the token is left out: tenure cluster add writes it)")
	if err != nil {
		return nil, err
	}
	s := newSecret(namespace, name, t.UID, a)
	s.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}
	s.StringData = map[string]string{kubeconfig.Key: string(text)}
	return s, nil
}

// stamp formats a time for a person.
func stamp(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 MST") }
