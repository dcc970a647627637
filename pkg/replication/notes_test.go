package replication

import (
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
)

func TestASourceThatIsWrittenAllTheTimeLeavesFewVersionsBehind(t *testing.T) {
	n, source, now := &notes{}, &appsv1.Deployment{}, time.Now()
	for i := range 10 * mostReplaced {
		source.ResourceVersion, now = fmt.Sprint(i), now.Add(statusEvery)
		n.replaced(source, false, now)
		if !n.behind(source, now) {
			t.Fatalf("the version that write %d replaced isn't known", i)
		}
	}
	if kept := len(n.sources[source.UID].replaced); kept > mostReplaced {
		t.Errorf("%d versions are kept", kept)
	}
}
