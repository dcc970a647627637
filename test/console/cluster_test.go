package console

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/keyutil"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cnatv1alpha1 "github.com/tenure-dev/tenure/pkg/apis/cnat/v1alpha1"
	"github.com/tenure-dev/tenure/pkg/onboard"
	"github.com/tenure-dev/tenure/pkg/replication"
	"github.com/tenure-dev/tenure/shard/keyspace"
	"github.com/tenure-dev/tenure/test/lab"
	"github.com/tenure-dev/tenure/test/lab/labtest"
	"github.com/tenure-dev/tenure/test/lab/rights"
	"github.com/tenure-dev/tenure/test/must"
)

// A cluster in which nothing is installed is added, used, checked and removed, as a newcomer would.
func TestAClusterIsAddedAndRemovedByOneCommandEach(t *testing.T) {
	f := newBareFleet(t, "west")
	admin := " --kubeconfig " + f.Planes.Cluster("west").Kubeconfig()
	add := "cluster add west --namespaces default --token-lifetime 24h" + admin

	out := f.says(0, add+" --dry-run=client -o yaml")
	if _, err := f.Planes.Cluster("west").Kubectl(t.Context(), firstOf(out, "Namespace"), "apply", "--validate=strict",
		"--dry-run=server", "-f", "-"); err != nil {
		t.Errorf("what is printed can't be applied: %v", err)
	}
	f.says(0, add+" --dry-run=client", "nothing was done", "token requested, for 24h")
	if err := f.west.Get(t.Context(), client.ObjectKey{Name: namespace}, &corev1.Namespace{}); err == nil {
		t.Error("a dry run made the namespace")
	}
	f.says(1, add+" --wait=1s", "not served: no replica is alive in namespace tenure-system")
	f.start("r0", "--cluster-removal-grace=1s")
	f.start("r1", "--cluster-removal-grace=1s", "--home-kubeconfig="+f.remote())
	f.says(0, add, "8 of 8 held by", "Secret tenure-system/west unchanged, expires")
	f.says(0, add, "nothing had to be changed")
	f.says(0, "cluster list", "west https://127.0.0.1:", "8/8", "served")
	f.do("first")
	f.says(0, "cluster check west", "ok rights all", "for ats, in namespace default", "expires")
	f.says(1, "cluster add east"+admin, "Secret tenure-system/west: annotation tenure.dev/cluster-uid is",
		"the same cluster")
	f.says(1, "cluster add north", "is the home cluster itself")

	f.mistaken()

	// After an installation with kubectl the command only adds the Secret.
	labtest.Kubectl(t, f.Planes.Cluster(lab.Home), "apply", "-k", "../../config/replication/target")
	const itself = "cluster add itself --context home --role ats,deployments --dry-run=client"
	if out := f.says(0, itself, "Secret tenure-system/itself created"); strings.Count(out, " unchanged\n") != 5 ||
		strings.Count(out, " created\n") != 1 {
		t.Errorf("what kubectl installed is not what this would install:\n%s", out)
	}

	// A right that replicas need only where an At asks to be deleted, one that is narrowed, and a policy that is switched
	// off.
	west := f.Planes.Cluster("west")
	labtest.Kubectl(t, west, "patch", "clusterrole", "tenure-ats-run", "--type=json",
		`-p=[{"op":"remove","path":"/rules/1"},{"op":"add","path":"/rules/0/resourceNames","value":["one"]}]`)
	labtest.Kubectl(t, west, "patch", "validatingadmissionpolicy", "tenure-at-status", "--type=merge",
		`-p={"spec":{"matchConditions":[{"name":"never","expression":"false"}]}}`)
	f.await("the missing right is found", func() bool {
		out, code := f.ask("cluster", "check", "west")
		return code == 1 && strings.Contains(out, "delete ats.cnat.programming-kubernetes.info") &&
			strings.Contains(out, "are missing")
	})
	f.says(0, "cluster add west"+admin, "roles and bindings 1 updated", "policies 1 updated",
		"the cluster is now for ats, in namespace default")
	f.await("the right is back", func() bool { _, code := f.ask("cluster", "check", "west"); return code == 0 })
	wider := "cluster add west --namespaces=*" + admin
	f.says(0, wider, "roles and bindings 1 created,", "1 deleted", "RoleBinding default/tenure-ats-run")
	f.says(0, wider, "nothing had to be changed")
	out = labtest.Kubectl(t, west, "get", "validatingadmissionpolicies", "-o", "yaml")
	if strings.Contains(out, "never") {
		t.Errorf("a policy is still switched off:\n%s", out)
	}
	f.await("the right is back", func() bool { _, code := f.ask("cluster", "check", "west"); return code == 0 })
	// A run that can't note in home what is wanted changes nothing: the next one would take it back.
	reader, err := f.Planes.Cluster(lab.Home).UserKubeconfig("reader", "readers")
	must.Succeed(t, err)
	home := f.Planes.Cluster(lab.Home)
	labtest.Kubectl(t, home, "-n", namespace, "create", "role", "reader", "--verb=get,list",
		"--resource=secrets,events,leases.coordination.k8s.io,shards.tenure.dev")
	labtest.Kubectl(t, home, "-n", namespace, "create", "rolebinding", "reader", "--role=reader", "--user=reader")
	f.may("reader", "list", "secrets")
	f.says(1, "cluster add west --namespaces=default --home-kubeconfig "+reader+admin,
		"writing Secret tenure-system/west")
	f.says(0, wider, "nothing had to be changed")

	before := f.secret()
	f.says(0, "cluster rotate west --token-lifetime 12h"+admin, "in 12h",
		"the token before stays valid until")
	if after := f.secret(); string(after.Data["kubeconfig"]) == string(before.Data["kubeconfig"]) {
		t.Error("the Secret holds the same token as before")
	}
	f.do("second")
	var all []onboard.Entry
	must.Succeed(t, json.Unmarshal([]byte(f.says(0, "cluster list -o json")), &all))
	if len(all) != 1 || all[0].Expires == nil || time.Until(*all[0].Expires) > 12*time.Hour || !all[0].Service.Complete {
		t.Errorf("the list: %+v", all)
	}

	// Of another fleet's cluster, or under a mistyped name, nothing is deleted.
	f.says(1, "cluster remove wset"+admin, "this is cluster west (its Secret has annotation")
	f.says(1, "cluster remove west --namespace default"+admin,
		"replicas in namespace tenure-system serve this cluster as west", "nothing was done")
	f.says(0, "cluster check west")

	f.renewed()
	f.says(0, "cluster check west", "the fleet renews them before")
	f.leave("r0")
	f.leave("r1")
	f.renewedByALeader()
	f.start("r0", "--cluster-removal-grace=1s")
	f.await("a fleet that shares the work serves again", f.settled(1))

	// Another fleet, which has a name, takes over. The commands for the first fleet know nothing of it.
	f.leave("r0")
	f.start("n0", "--fleet=night", "--cluster-removal-grace=1s")
	f.says(0, "cluster add west --fleet=night"+admin, "8 of 8 held by 1 of 1 replicas")
	f.says(0, "cluster list --fleet=night", "8/8", "served")
	f.says(1, "cluster list", "not served")
	secret := f.secret()
	secret.Finalizers = []string{"example.com/hold"}
	must.Succeed(t, f.home.Update(t.Context(), secret))
	f.says(0, "cluster remove west --fleet=night --wait=0", "Secret tenure-system/west deleted",
		"8 of 8 held by 1 of 1 replicas", "replicas weren't waited for")
	f.await("a cluster whose Secret a finalizer holds is let go of", func() bool {
		out, code := f.ask("cluster", "list", "--fleet=night")
		_, healthy := f.ask("status", "--fleet=night")
		return code == 0 && strings.Contains(out, "being removed") && healthy == 0
	})
	secret = f.secret()
	secret.Finalizers = nil
	must.Succeed(t, f.home.Update(t.Context(), secret))
	copied := labtest.Deployment("default", "web")
	copied.Labels = map[string]string{keyspace.SlotLabel: "0"}
	copied.Annotations = map[string]string{replication.AnnotationSource: "home/default/web"}
	f.create(f.west, copied)
	f.says(0, "cluster remove west --fleet=night"+admin, "west not there", "shards let go of",
		"8 Shard records left, held by nobody", "API of Ats 1 left", "5 Ats are left", "copies of Deployments left: 1")
	f.says(0, "cluster list", "no clusters")
	f.leftovers()
}

// mistaken gives the commands a cluster that isn't the one they need, and an At where the fleet may not run any.
func (f *fleet) mistaken() {
	f.t.Helper()
	home, west := f.Planes.Cluster(lab.Home).Kubeconfig(), f.Planes.Cluster("west").Kubeconfig()
	f.says(1, "cluster add east --kubeconfig "+home+" --home-kubeconfig "+west,
		"has no kind Shard: it isn't the home cluster")
	if err := f.west.Get(f.t.Context(), client.ObjectKey{Namespace: namespace, Name: "east"},
		&corev1.Secret{}); !apierrors.IsNotFound(err) {
		f.t.Errorf("credentials were put into a cluster that isn't home: %v", err)
	}
	must.Succeed(f.t, lab.AddNamespace(f.t.Context(), f.west, rights.Unbound))
	at := labtest.At(rights.Unbound, "barred", time.Now())
	f.create(f.west, at)
	why := "why at/barred --cluster west --object-namespace " + rights.Unbound
	f.says(1, "status --home-kubeconfig "+west, "has no kind Shard")
	f.says(1, why+" --kubeconfig "+home, "--kubeconfig leads to another cluster than west")
	f.says(1, why, "the fleet may not run Ats there")
	must.Succeed(f.t, f.west.Delete(f.t.Context(), at))
}

// renewed checks that the fleet renews a token whose life is nearly over, that it keeps serving meanwhile, and that it
// leaves alone what somebody else has put there.
func (f *fleet) renewed() {
	f.t.Helper()
	held := map[string]string{}
	shards := func(differs func(id, epoch string) bool) (yes bool) {
		state, _ := f.status()
		for _, s := range state.Shards {
			yes = differs(s.ID.String(), fmt.Sprint(s.Epoch)) || yes
		}
		return yes
	}
	// Nine of the ten minutes are over, so the token is renewed when the coordinator next looks at it.
	old := f.aged(10*time.Minute, 9*time.Minute)
	shards(func(id, epoch string) bool { held[id] = epoch; return false })
	f.put(old, "")
	f.do("third")
	if got := f.secret(); string(got.Data["kubeconfig"]) != string(old) {
		f.t.Fatal("a kubeconfig that the fleet didn't ask for was replaced")
	}
	old = f.aged(10*time.Minute, 9*time.Minute) // the last minute of the one before may be over
	f.put(old, fmt.Sprintf("%x", sha256.Sum256(old)))
	f.awaitRenewed(2)
	f.await("the renewal is told of", f.told(onboard.ReasonRenewed))
	if shards(func(id, epoch string) bool { return held[id] != epoch }) {
		f.t.Errorf("shards moved: they were %v", held)
	}
}

// told reports whether an event has a reason.
func (f *fleet) told(reason string) func() bool {
	return func() bool {
		events := &eventsv1.EventList{}
		return f.home.List(f.t.Context(), events, client.InNamespace(namespace)) == nil &&
			slices.ContainsFunc(events.Items, func(e eventsv1.Event) bool { return e.Reason == reason })
	}
}

// awaitRenewed waits for a token that was issued just now, and until so many replicas, and no more, report that the
// fleet renews it.
func (f *fleet) awaitRenewed(many int) {
	f.t.Helper()
	f.await("the token is renewed", func() bool {
		h := onboard.Hold(f.secret())
		return h.Renewed && time.Until(h.Expires) > 9*time.Minute
	})
	f.await("replicas say that the fleet renews the token", func() bool {
		said := 0
		for _, r := range f.replicas {
			page, err := lab.Get(f.t.Context(), "http://"+r.Address(0)+"/metrics")
			if err == nil && strings.Contains(string(page), "\ntenure_cluster_token_renewed{cluster=\"west\"} 1\n") {
				said++
			}
		}
		return said == many
	})
}

// renewedByALeader checks that of two replicas without sharding one leads, with the rights that the others have, and
// renews the token as well, and that Ats are served in time and once while it goes over to the new one.
func (f *fleet) renewedByALeader() {
	f.t.Helper()
	const ats, every, late = 100, 100 * time.Millisecond, 10 * time.Second
	f.start("leader-0", "--sharding=off")
	f.start("leader-1", "--sharding=off")
	if at := f.do("fourth"); at.Status.Epoch != 0 {
		f.t.Errorf("epoch %d without a tenure", at.Status.Epoch)
	}
	if err := f.home.Get(f.t.Context(), client.ObjectKey{Namespace: namespace, Name: "tenure-leader"},
		&coordinationv1.Lease{}); err != nil {
		f.t.Error(err)
	}
	f.await("an event names the leader", f.told("LeaderElection"))
	due, led := map[string]time.Time{}, map[string]string{"led": "true"}
	for i := range ats {
		name := fmt.Sprint("led-", i)
		due[name] = time.Now().Add(time.Duration(i) * every)
		at := labtest.At("default", name, due[name])
		at.Labels = led
		f.create(f.west, at)
	}
	old := f.aged(10*time.Minute, 9*time.Minute)
	f.put(old, fmt.Sprintf("%x", sha256.Sum256(old)))
	f.awaitRenewed(1) // the leader
	f.do("fifth")
	renewed := f.credential()
	f.await("a Pod is made with the new token", func() bool {
		log, err := os.ReadFile(f.Planes.Cluster("west").AuditLog())
		must.Succeed(f.t, err)
		for line := range strings.Lines(string(log)) {
			if strings.Contains(line, renewed) && strings.Contains(line, `"verb":"create"`) &&
				strings.Contains(line, `"resource":"pods"`) {
				return true
			}
		}
		return false
	})
	made := map[string]time.Time{}
	f.await("all Ats have a Pod", func() bool {
		pods := &corev1.PodList{}
		if err := f.west.List(f.t.Context(), pods, client.InNamespace("default")); err != nil {
			return false
		}
		clear(made)
		for _, pod := range pods.Items {
			at := metav1.GetControllerOf(&pod).Name
			if _, twice := made[at]; twice {
				f.t.Fatalf("%s has two Pods", at)
			}
			if made[at] = pod.CreationTimestamp.Time; due[at].IsZero() {
				delete(made, at)
			}
		}
		return len(made) == ats
	})
	var latest time.Duration
	for name, at := range due {
		after := made[name].Sub(at)
		if latest = max(latest, after); after > late || after < -time.Second { // to the second
			f.t.Errorf("the Pod of %s was made %v after its time", name, after)
		}
	}
	f.t.Logf("%d Ats, the latest %v after its time", ats, latest)
	f.leave("leader-0")
	f.leave("leader-1")
	must.Succeed(f.t, f.west.DeleteAllOf(f.t.Context(), &cnatv1alpha1.At{}, client.InNamespace("default"),
		client.MatchingLabels(led)))
}

// put puts a kubeconfig into the Secret of west, with the sum of one that the fleet has asked for or, "", without.
func (f *fleet) put(kubeconfig []byte, sum string) {
	f.t.Helper()
	s := f.secret()
	s.Data["kubeconfig"] = kubeconfig
	if s.Annotations[onboard.SumAnnotation] = sum; sum == "" {
		delete(s.Annotations, onboard.SumAnnotation)
	}
	must.Succeed(f.t, f.home.Update(f.t.Context(), s))
}

// token is the kubeconfig in the Secret of west, its user, and what the user's token claims.
func (f *fleet) token() (config *clientcmdapi.Config, user *clientcmdapi.AuthInfo, claims map[string]any) {
	f.t.Helper()
	config, err := clientcmd.Load(f.secret().Data["kubeconfig"])
	must.Succeed(f.t, err)
	user = config.AuthInfos[config.Contexts[config.CurrentContext].AuthInfo]
	body, err := base64.RawURLEncoding.DecodeString(strings.Split(user.Token, ".")[1])
	must.Succeed(f.t, errors.Join(err, json.Unmarshal(body, &claims)))
	return config, user, claims
}

// credential is how an audit log names the token in the Secret of west.
func (f *fleet) credential() string {
	_, _, claims := f.token()
	return fmt.Sprint("JTI=", claims["jti"])
}

// aged is the kubeconfig in the Secret of west, with a token of the given life, some of which is over. No API server
// gives one for less than ten minutes, so this one is signed with the API server's own key.
func (f *fleet) aged(life, over time.Duration) []byte {
	f.t.Helper()
	config, user, claims := f.token()
	parts := strings.Split(user.Token, ".")
	issued := time.Now().Add(-over).Unix()
	claims["iat"], claims["nbf"], claims["exp"] = issued, issued, issued+int64(life/time.Second)
	body, err := json.Marshal(claims)
	must.Succeed(f.t, err)
	text, err := os.ReadFile(filepath.Join(f.Planes.Dir(), "west", "pki", "service-account.key"))
	must.Succeed(f.t, err)
	key, err := keyutil.ParsePrivateKeyPEM(text)
	must.Succeed(f.t, err)
	signed := parts[0] + "." + base64.RawURLEncoding.EncodeToString(body)
	digest := sha256.Sum256([]byte(signed))
	r, s, err := ecdsa.Sign(rand.Reader, key.(*ecdsa.PrivateKey), digest[:])
	must.Succeed(f.t, err)
	user.Token = signed + "." + base64.RawURLEncoding.EncodeToString(
		append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...))
	kubeconfig, err := clientcmd.Write(*config)
	must.Succeed(f.t, err)
	return kubeconfig
}

// remote is home's kubeconfig as replicas of other clusters have it: config/remote mounts it beside its token.
func (f *fleet) remote() string {
	f.t.Helper()
	path, err := f.Planes.Cluster(lab.Home).ServiceAccountKubeconfig(f.t.Context(), namespace, lab.Account)
	must.Succeed(f.t, err)
	config, err := clientcmd.LoadFromFile(path)
	must.Succeed(f.t, err)
	folder := f.t.TempDir()
	for _, user := range config.AuthInfos {
		err = errors.Join(err, os.WriteFile(filepath.Join(folder, "token"), []byte(user.Token), 0o600))
		user.Token, user.TokenFile = "", filepath.Join(folder, "token")
	}
	path = filepath.Join(folder, "kubeconfig")
	must.Succeed(f.t, errors.Join(err, clientcmd.WriteToFile(*config, path)))
	return path
}

// firstOf returns the objects of one kind.
func firstOf(manifests, kind string) string {
	var of []string
	for document := range strings.SplitSeq(manifests, "---\n") {
		if strings.Contains(document, "\nkind: "+kind+"\n") {
			of = append(of, document)
		}
	}
	return strings.Join(of, "---\n")
}

func (f *fleet) secret() *corev1.Secret {
	f.t.Helper()
	s := &corev1.Secret{}
	must.Succeed(f.t, f.home.Get(f.t.Context(), client.ObjectKey{Namespace: namespace, Name: "west"}, s))
	return s
}

// do makes the fleet run an At. Nothing runs Pods there, so the test itself writes that the At's Pod has ended.
func (f *fleet) do(name string) *cnatv1alpha1.At {
	f.t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "default"}}
	must.Succeed(f.t, client.IgnoreAlreadyExists(f.west.Create(f.t.Context(), account)))
	at := labtest.At("default", name, time.Now())
	f.create(f.west, at)
	pod := &corev1.Pod{}
	f.await("the Pod of "+name, func() bool {
		return f.west.Get(f.t.Context(), client.ObjectKeyFromObject(at), at) == nil && at.Status.PodName != "" &&
			f.west.Get(f.t.Context(), client.ObjectKey{Namespace: "default", Name: at.Status.PodName}, pod) == nil
	})
	pod.Status.Phase = corev1.PodSucceeded
	must.Succeed(f.t, f.west.Status().Update(f.t.Context(), pod))
	f.await(name+" is done", func() bool {
		return f.west.Get(f.t.Context(), client.ObjectKeyFromObject(at), at) == nil && at.Status.Phase == cnatv1alpha1.AtDone
	})
	return at
}

// leftovers checks that nothing is left in the cluster but the API and its objects; its namespace is on its way out.
func (f *fleet) leftovers() {
	f.t.Helper()
	out := labtest.Kubectl(f.t, f.Planes.Cluster("west"), "get",
		"clusterroles,clusterrolebindings,validatingadmissionpolicies,"+
			"validatingadmissionpolicybindings,customresourcedefinitions", "-o", "name")
	out += labtest.Kubectl(f.t, f.Planes.Cluster("west"), "get", "rolebindings,serviceaccounts", "-A", "-o", "name")
	var left []string
	for line := range strings.Lines(out) {
		if strings.Contains(line, "tenure") || strings.Contains(line, "cnat") {
			left = append(left, strings.TrimSpace(line))
		}
	}
	if want := "[customresourcedefinition.apiextensions.k8s.io/ats.cnat.programming-kubernetes.info]"; fmt.Sprint(
		left) != want {
		f.t.Errorf("left in the cluster: %v", left)
	}
	there := &corev1.Namespace{}
	if err := f.west.Get(f.t.Context(), client.ObjectKey{Name: namespace}, there); err == nil &&
		there.DeletionTimestamp == nil {
		f.t.Error("the namespace is left")
	}
}
