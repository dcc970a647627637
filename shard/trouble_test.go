package shard

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestTroubleOfACauseIsToldOfOnceAMinuteAndTheRestCounted(t *testing.T) {
	shards := schema.GroupResource{Resource: "shards"}
	causes := map[string]error{
		"no answer": errors.New("connection refused"), "overloaded": apierrors.NewTooManyRequests("later", 1),
		"refused": apierrors.NewForbidden(shards, "s", nil), "server error": apierrors.NewInternalError(errors.New("etcd")),
	}
	synctest.Test(t, func(t *testing.T) {
		var lines []string
		trouble := newTrouble(funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{}))
		for range 150 { // 149 s
			for _, err := range causes {
				trouble.tell("Renew", err)
			}
			time.Sleep(time.Second)
		}
		for cause := range causes {
			told := 0
			for _, line := range lines {
				if strings.Contains(line, `"cause"="`+cause+`"`) {
					told++
					if (told > 1) != strings.Contains(line, `"moreLikeIt"=59`) {
						t.Errorf("line %d says %s", told, line)
					}
				}
			}
			if told != 3 {
				t.Errorf("%s is told of %d times in 149 s, want 3", cause, told)
			}
		}
	})
}

type answers func(*http.Request) (*http.Response, error)

func (a answers) RoundTrip(r *http.Request) (*http.Response, error) { return a(r) }

func TestHowLongTheAPIServerAsksToWaitIsToldAndTheClientNotMadeToWait(t *testing.T) {
	for _, c := range []struct {
		header string
		want   time.Duration
	}{{"", 0}, {"1", time.Second}, {"90", 90 * time.Second}, {"999999999", time.Hour}, {"soon", 0}, {"-1", 0}} {
		server := answers(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusTooManyRequests, Header: http.Header{"Retry-After": {c.header}}}, nil
		})
		ctx, wait := obeying(t.Context())
		request, err := http.NewRequestWithContext(ctx, http.MethodPatch, "https://home", nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := obedient{server}.RoundTrip(request)
		if err != nil || res.Header.Get("Retry-After") != "" && c.header != "" || *wait != c.want {
			t.Errorf("Retry-After %q: %v is waited for (%v), and the client sees %q", c.header, *wait, err,
				res.Header.Get("Retry-After"))
		}
		if _, err := (obedient{server}).RoundTrip(request.WithContext(t.Context())); err != nil { // nobody wants to know
			t.Error(err)
		}
	}
	failing := answers(func(*http.Request) (*http.Response, error) { return nil, errors.New("cut") })
	if _, err := (obedient{failing}).RoundTrip(&http.Request{}); err == nil {
		t.Error("a request that failed is told to have succeeded")
	}
}
