package engage

import (
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-dev/tenure/test/bubble"
)

// admitting is an API server that takes long for writes, and otherwise answers inquiries only.
type admitting struct {
	writes    time.Duration // 0: no write is answered
	inquiries time.Duration // 0: none is answered
	status    int           // of an inquiry
	mu        sync.Mutex    // guards all below
	asked     map[string]int
}

func (a *admitting) RoundTrip(req *http.Request) (*http.Response, error) {
	a.mu.Lock()
	if a.asked == nil {
		a.asked = map[string]int{}
	}
	a.asked[req.Method+" "+req.URL.String()+" by "+req.UserAgent()]++
	a.mu.Unlock()
	if req.Method == http.MethodGet {
		return answerAfter(req, a.inquiries, a.status)
	}
	return answerAfter(req, a.writes, http.StatusCreated)
}

// An aggregated API server, a conversion webhook, or what a cluster passes a request on to, may take long for a read.
func TestALiveReadIsWaitedForWhileTheClusterAnswersInquiries(t *testing.T) {
	for path, takes := range map[string]time.Duration{ // 0: the cluster is silent
		"/apis/metrics.example.com/v1/namespaces/n/loads/a": 10 * time.Second,
		"/apis/metrics.example.com/v1/loads":                10 * time.Second,
		"/api/v1/namespaces/n/services/b/proxy/slow":        2 * time.Minute,
		"/api/v1/namespaces/n/pods":                         0,
	} {
		synctest.Test(t, func(t *testing.T) {
			silent := takes == 0
			f := openFence(t, servers(func(req *http.Request) (*http.Response, error) {
				if strings.HasSuffix(req.URL.Path, "/kube-system") && !silent {
					return answerAfter(req, time.Millisecond, http.StatusOK)
				}
				return answerAfter(req, takes, http.StatusOK)
			}))
			began := time.Now()
			_, err := send(t.Context(), f, http.MethodGet, "https://west"+path)
			if open, why := f.traffic.Breaker.Open(); (err != nil) != silent || open != silent {
				t.Errorf("%s: %v after %v; keys are put off: %v %s", path, err, time.Since(began), open, why)
			}
			if took := time.Since(began); silent && took > stallAfter {
				t.Errorf("a silent cluster holds a worker for %v", took)
			}
		})
	}
}

// A webhook may take half a minute to admit a write. If it was given up before, and sent again, it would never be done.
func TestAWriteIsWaitedForWhileTheClusterAnswersInquiries(t *testing.T) {
	const inquired = "GET https://west/proxy/api/v1/namespaces/kube-system by " +
		"tenure/test (shard=west/01; epoch=1; incarnation=a-1)"
	for name, c := range map[string]struct {
		server    *admitting
		done      bool
		after     time.Duration
		inquiries int
	}{
		"a slow webhook": {&admitting{writes: 10 * time.Second, inquiries: 1, status: http.StatusOK}, true,
			10 * time.Second, 6},
		"a user that may read nothing": {&admitting{writes: 10 * time.Second, inquiries: 1, status: http.StatusForbidden},
			true, 10 * time.Second, 6},
		"a fast one":      {&admitting{writes: stallAfter/2 - 1}, true, stallAfter/2 - 1, 0},
		"a silent server": {&admitting{}, false, stallAfter, 1},
		"storage that is away": {&admitting{inquiries: 1, status: http.StatusInternalServerError}, false,
			stallAfter, 1},
		"a write that is lost": {&admitting{inquiries: time.Second, status: http.StatusOK}, false,
			longestAnswer + stallAfter, 24},
	} {
		bubble.Run(t, name, func(t *testing.T) {
			f := openFence(t, c.server)
			began := time.Now()
			var both sync.WaitGroup // two writes side by side make no more inquiries than one
			for range 2 {
				both.Go(func() {
					const ats = "https://west/proxy/apis/tenure.dev/v1/namespaces/n/ats?dryRun="
					_, err := send(t.Context(), f, http.MethodPost, ats)
					if (err == nil) != c.done || err != nil && !errors.Is(err, ErrStalled) {
						t.Errorf("got %v; want it done: %v, else ErrStalled", err, c.done)
					}
					if took := time.Since(began).Round(time.Second / 2); took != c.after.Round(time.Second/2) {
						t.Errorf("after %v, want %v", took, c.after)
					}
				})
			}
			both.Wait()
			synctest.Wait()
			if n := c.server.asked[inquired]; n != c.inquiries {
				t.Errorf("%d inquiries, want %d; of all requests:\n%v", n, c.inquiries, c.server.asked)
			}
			if open, cause := f.traffic.Breaker.Open(); open == c.done || open && cause != Silence {
				t.Errorf("keys are put off: %v %s", open, cause)
			}
		})
	}
}
