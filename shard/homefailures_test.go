package shard

import (
	"errors"
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
		failures := newHomeFailures(funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{}))
		for range 150 { // 149 s
			for _, err := range causes {
				failures.report("Renew", err)
			}
			time.Sleep(time.Second)
		}
		for cause := range causes {
			told := 0
			for _, line := range lines {
				if strings.Contains(line, `"cause"="`+cause+`"`) {
					told++
					if (told > 1) != strings.Contains(line, `"leftOut"=59`) {
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
