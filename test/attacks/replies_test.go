package attacks

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenure-dev/tenure/pkg/clusterhealth"
	"github.com/tenure-dev/tenure/pkg/kubeconfig"
	"github.com/tenure-dev/tenure/pkg/text"
)

// replyCase is described in testdata/replies.yaml.
type replyCase struct {
	Name         string
	Status       int
	Headers      map[string]string
	Body         string
	Reason, Want string
}

func (c replyCase) caseName() string { return c.Name }

func TestReplies(t *testing.T) {
	set := setTraps(t)
	elsewhere, asked := server(t)
	var now replyCase // what the server answers with
	var fill *strings.Replacer
	bad := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for key, value := range now.Headers {
			w.Header()[key] = []string{fill.Replace(value)}
		}
		w.WriteHeader(now.Status)
		if now.Status != http.StatusNoContent {
			_, _ = io.WriteString(w, fill.Replace(now.Body))
		}
	}))
	bad.Config.ErrorLog = log.New(io.Discard, "", 0)
	bad.StartTLS()
	defer bad.Close()
	config, _ := kubeconfigOf(bad)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "west"},
		Data: map[string][]byte{kubeconfig.Key: []byte(config)}}
	fill = strings.NewReplacer(
		"${ELSEWHERE}", elsewhere.URL, "${ELSEWHEREHOST}", elsewhere.Listener.Addr().String(), "${SERVERHOST}",
		bad.Listener.Addr().String(),
		"${FILE}", set.file, "${CANARY}", canary, "${LONG}", repeat("long", 1<<20/4),
	)
	for _, c := range read[replyCase](t, "replies") {
		t.Run(c.Name, func(t *testing.T) {
			now = c
			asked.Opened.Store(0)
			reason, note := "", ""
			bounded(t, func() { reason, note, _ = clusterhealth.Look(t.Context(), secret, kubeconfig.Policy{}, 2*time.Second) })
			shown(t, note)
			set.check(t)
			if asked.Opened.Load() > 0 {
				t.Error("a server was asked that is none of ours")
			}
			if reason != c.Reason || !strings.Contains(note, c.Want) || len(note) > text.Note {
				t.Errorf("%s: %s\nwant %s with %q", reason, note, c.Reason, c.Want)
			}
		})
	}
}
