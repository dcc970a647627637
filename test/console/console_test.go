package console

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cnatv1alpha1 "github.com/tenure-dev/tenure/pkg/apis/cnat/v1alpha1"
	tenurev1alpha1 "github.com/tenure-dev/tenure/pkg/apis/tenure/v1alpha1"
	"github.com/tenure-dev/tenure/pkg/statuspage"
	"github.com/tenure-dev/tenure/test/lab"
	"github.com/tenure-dev/tenure/test/lab/labtest"
	"github.com/tenure-dev/tenure/test/must"
)

// One fleet goes through what a person on call sees in a night. The steps build on one another, since what a fleet
// needs most of the time is to start.
func TestThePersonOnCallSeesWhatHappens(t *testing.T) {
	ctrl.SetLogger(logr.FromSlogHandler(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})))
	f := newFleet(t)
	f.start("r0")
	f.start("r1", "--metrics-secure=true")
	for name, after := range map[string]time.Duration{"soon": 0, "later": time.Hour} {
		labtest.CreateAts(t, f.west, "west", name, 8, func(int) time.Time { return time.Now().Add(after) })
	}
	f.await("two replicas hold everything", f.settled(2))
	f.await("what is due is done", func() bool {
		at := &cnatv1alpha1.At{}
		err := f.west.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "soon-7"}, at)
		return err == nil && at.Status.Phase == cnatv1alpha1.AtDone
	})
	f.await("holders have reported what they hold, which finished Ats are no part of",
		func() bool { state, _ := f.status(); return state.Totals.Objects == 8 })
	t.Run("questions", f.askWhenAllIsWell)
	t.Run("page", f.openPage)
	t.Run("authorization", f.openSecurePage)
	t.Run("viewer", f.askAsViewer)
	t.Run("page through the API server", f.knock)
	f.leave("r0")
	f.await("r1 has taken over", f.settled(1))
	f.start("r2")
	f.await("r2 has its part", f.settled(2))
	f.leave("r1")
	f.await("r2 has taken over by handoffs", f.settled(1))
	t.Run("metrics", f.checkMetrics)
	f.replicas["r2"].Kill()
	f.await("the crash is told", func() bool { _, code := f.status(); return code == 1 })
	t.Run("questions after a crash", f.askAfterCrash)
	t.Run("restore", f.restore)
	must.Succeed(t, f.Planes.Cluster("west").StopAPIServer())
	f.await("a cluster that is away is told", func() bool {
		out, code := f.ask("status")
		return code == 1 && strings.Contains(out, "! WRONG cluster west: Unreachable")
	})
}

func (f *fleet) askWhenAllIsWell(*testing.T) {
	f.says(0, "status", "healthy: 2 replicas, 8 shards in 1 cluster, 8 objects", "west answers", "8/8")
	f.says(0, "why at/soon-0", "it is done", "Held, epoch")
	f.says(0, "why at/later-0 -n default --cluster west", "its time comes in", "renewed")
	f.says(1, "why at/none", "no such object")
	f.says(2, "why at/later-0 --cluster north", "no such cluster")
	f.says(2, "why pod/x", "want at/NAME")
	f.says(0, "plan", "nothing would move")
	f.says(0, "plan --replicas 4", "4 shards would move", "new-2")
	f.says(0, "plan --drain r0", "4 shards would move", "drained")
	f.says(2, "plan --drain r9", "no live replica has that name")
	f.says(1, "status --namespace nowhere", "there is no namespace nowhere")
	f.says(2, "status extra", `unexpected argument "extra"`)
}

// askAsViewer asks with the shipped role alone, which gives no right to read Secrets. The output must name what it
// can't show.
func (f *fleet) askAsViewer(t *testing.T) {
	kubeconfig := f.account("viewer", "tenure-viewer", "leases.coordination.k8s.io")
	must.Succeed(t, f.AddKubeconfig(t.Context(), "broken", []byte("current-context: x")))
	defer func() {
		if err := f.RemoveCluster(t.Context(), "broken"); err != nil {
			t.Error(err)
		}
	}()
	var out string
	f.await("the viewer sees what a replica says of a Secret", func() bool {
		out, _ = f.askAs(kubeconfig, "status")
		out = flatten(out)
		return strings.Contains(out, "cluster broken: BadKubeconfig: kubeconfig: current-context must name one of contexts")
	})
	if !strings.Contains(out, "not read: the kubeconfig Secrets") || !strings.Contains(out, "8/8") {
		t.Errorf("status as a viewer:\n%s", out)
	}
	viewer := " --home-kubeconfig " + kubeconfig
	f.says(0, "plan"+viewer, "nothing would move")
	f.says(1, "why at/soon-0 --cluster west"+viewer, "the kubeconfig Secret of cluster west (or give --kubeconfig)")
	f.says(0, "why at/soon-0 --cluster west --kubeconfig "+f.Planes.Cluster("west").Kubeconfig()+viewer, "it is done")
}

// openPage looks at the views of a replica that serves its page openly.
func (f *fleet) openPage(t *testing.T) {
	page := "http://" + f.replicas["r0"].Address(0) + "/status"
	body, err := lab.Get(t.Context(), page+"/data")
	must.Succeed(t, err)
	var view statuspage.View
	must.Succeed(t, json.Unmarshal(body, &view))
	state, _ := f.status()
	if view.By != "r0" || len(view.Fleet.Shards) != 8 || view.Fleet.Totals.Replicas != 2 || len(view.Queues) != 1 {
		t.Errorf("the view: %s", body)
	}
	for i, s := range view.Fleet.Shards {
		if s.Holder != state.Shards[i].Holder {
			t.Errorf("shard %s: the page says %s, the command %s", s.ID, s.Holder, state.Shards[i].Holder)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, page+"/events", nil)
	must.Succeed(t, err)
	response, err := http.DefaultClient.Do(request)
	must.Succeed(t, err)
	defer response.Body.Close()
	views := 0
	for lines := bufio.NewScanner(bufio.NewReaderSize(response.Body, 1<<20)); views < 2 && lines.Scan(); {
		if lines.Text() == "event: view" {
			views++
		}
	}
	if views < 2 {
		t.Errorf("only %d views came", views)
	}
}

// openSecurePage checks that the page is behind the same authorization as the metrics.
func (f *fleet) openSecurePage(t *testing.T) {
	token := func(account string) string {
		f.create(f.home, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: account}})
		request := &authenticationv1.TokenRequest{}
		sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: account}}
		must.Succeed(t, f.home.SubResource("token").Create(t.Context(), sa, request))
		return request.Status.Token
	}
	reader, stranger := token("reader"), token("stranger")
	f.readsMetrics("reader")
	// its certificate is self-signed
	https := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	for _, path := range []string{"/metrics", "/status", "/status/data", "/status/page.js"} {
		for bearer, want := range map[string]int{
			"": http.StatusUnauthorized, stranger: http.StatusForbidden, reader: http.StatusOK,
			"made up": http.StatusInternalServerError, // how controller-runtime says no to it
		} {
			request, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
				"https://"+f.replicas["r1"].Address(0)+path, nil)
			must.Succeed(t, err)
			if bearer != "" {
				request.Header.Set("Authorization", "Bearer "+bearer)
			}
			response, err := https.Do(request)
			must.Succeed(t, err)
			response.Body.Close()
			if response.StatusCode != want {
				t.Errorf("GET %s: %s, want %d", path, response.Status, want)
			}
		}
	}
}

// checkMetrics compares what dashboard and alerts ask for with what a replica exports.
func (f *fleet) checkMetrics(t *testing.T) {
	body, err := lab.Get(t.Context(), "http://"+f.replicas["r2"].Address(0)+"/metrics")
	must.Succeed(t, err)
	there, ours := map[string]bool{}, ""
	for line := range strings.Lines(string(body)) {
		name := line[:strings.IndexAny(line+" ", "{ ")]
		there[name] = true
		if fields := strings.Fields(line); strings.HasPrefix(name, "tenure_") ||
			len(fields) > 2 && fields[0] == "#" && strings.HasPrefix(fields[2], "tenure_") {
			ours += line
			if fields[0] == "#" {
				there[fields[2]] = true // a histogram's own name stands only here
			}
		}
	}
	content, err := os.ReadFile("../../config/monitoring/metrics.txt")
	must.Succeed(t, err)
	names := append(strings.Fields(string(content)),
		"tenure_shard_phase", "tenure_shard_load", "tenure_clusters_known") // which only people ask for
	// A replica exports these only while they have something to report: keys in a queue, a shard that isn't served,
	// a Secret that is refused, a token that the fleet renews.
	passing := []string{
		"tenure_cluster_keys", "tenure_oldest_key_wait_seconds", "tenure_shard_held_not_served_seconds",
		"tenure_cluster_kubeconfig_rejected",
		"tenure_cluster_token_renewed",
	}
	for _, name := range names {
		if !there[name] && !slices.Contains(passing, name) {
			t.Errorf("dashboard or alerts use %s, which a live replica doesn't have", name)
		}
	}
	if len(names) < 20 {
		t.Errorf("only %d names in metrics.txt", len(names))
	}
	promtool := exec.CommandContext(t.Context(), "../../bin/promtool", "check", "metrics")
	promtool.Stdin = strings.NewReader(ours)
	if out, err := promtool.CombinedOutput(); err != nil {
		t.Errorf("promtool check metrics (make promtool builds it): %v\n%s", err, out)
	}
}

func (f *fleet) askAfterCrash(t *testing.T) {
	out, code := f.ask("status")
	if code != 1 || !strings.Contains(out, "! WRONG no replica is alive: nothing is reconciled") ||
		!strings.Contains(out, "quiet") {
		t.Errorf("status: exit code %d\n%s", code, out)
	}
	out, code = f.ask("why", "at/later-0")
	if code != 1 || !strings.Contains(out, "! lease     not renewed for") {
		t.Errorf("why: exit code %d\n%s", code, out)
	}
}

// restore follows the runbook's entry, after home was set back to before everything.
func (f *fleet) restore(t *testing.T) {
	done := time.Now().Add(24 * time.Hour).UnixMilli() // the highest epoch in use; a clock was wrong
	at := &cnatv1alpha1.At{}
	must.Succeed(t, f.west.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "later-0"}, at))
	at.Status.Epoch = done
	must.Succeed(t, f.west.Status().Update(t.Context(), at))
	if out, code := f.ask("why", "at/later-0"); code != 1 ||
		!strings.Contains(out, "the record is older than the object") {
		t.Errorf("why doesn't find the old record: exit code %d\n%s", code, out)
	}
	members := client.MatchingLabels{"tenure.dev/role": "member"}
	for _, err := range []error{
		f.home.DeleteAllOf(t.Context(), &tenurev1alpha1.Shard{}, client.InNamespace(namespace)),
		f.home.DeleteAllOf(t.Context(), &coordinationv1.Lease{}, client.InNamespace(namespace), members),
	} {
		must.Succeed(t, err)
	}
	lead := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "tenure-coordinator"}}
	floor := fmt.Sprintf(`{"metadata":{"annotations":{"tenure.dev/epoch-floor":"%d"}}}`, done+100)
	must.Succeed(t, f.home.Patch(t.Context(), lead, client.RawPatch("application/merge-patch+json", []byte(floor))))
	f.start("r3")
	f.await("a new replica holds everything", f.settled(1))
	state, _ := f.status()
	for _, s := range state.Shards {
		if s.Epoch <= done {
			t.Errorf("shard %s has epoch %d, which isn't above %d", s.ID, s.Epoch, done)
		}
	}
	if out, code := f.ask("why", "at/later-0"); code != 0 {
		t.Errorf("why still finds something: exit code %d\n%s", code, out)
	}
}
