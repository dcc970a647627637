package integration

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-dev/tenure/pkg/replication"
	"github.com/tenure-dev/tenure/test/lab"
)

// way is how a process ends, or what it doesn't learn, at a write.
type way string

const (
	crashBefore way = "crash before the write"
	crashAfter  way = "crash after the write"
	replyLost   way = "reply lost"
)

// crash hurts one write of a life: the site-th of each act. What was hurt is listed.
type crash struct {
	way  way
	site int

	mu     sync.Mutex // guards all below
	sent   int        // writes since the act began
	dead   bool       // the process that sends now
	killed chan struct{}
	ready  chan struct{} // closed when that process is connected to all clusters
	hurt   []string
}

var errDead = errors.New("the process has ended")

// act begins an act, once there is a process that can play it: the count starts anew.
func (c *crash) act(ctx context.Context) error {
	return lab.Eventually(ctx, time.Minute, func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.ready == nil || c.dead || !isClosed(c.ready) {
			return errors.New("no process is ready")
		}
		c.sent = 0
		return nil
	})
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// begin makes a new process. killed is closed when the process must die.
func (c *crash) begin() (killed <-chan struct{}, ready func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dead, c.killed, c.ready = false, make(chan struct{}), make(chan struct{})
	own := c.ready
	return c.killed, func() { close(own) }
}

// arrives says whether a request may be sent, and whether it is the one that is hurt.
func (c *crash) arrives(q *http.Request, cluster string) (hurt bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead {
		return false, errDead
	}
	if q.Method == http.MethodGet || strings.Contains(q.URL.Path, "/events") {
		return false, nil // events aren't counted: nothing depends on them
	}
	if c.sent++; c.sent != c.site {
		return false, nil
	}
	what := "deployment"
	switch {
	case strings.HasSuffix(q.URL.Path, "/namespaces"):
		what = "namespace"
	case strings.HasSuffix(q.URL.Path, "/status"):
		what = "status"
	}
	c.hurt = append(c.hurt, fmt.Sprintf("%s %s in %s", q.Method, what, cluster))
	if c.way == crashBefore {
		c.die()
		return true, errDead
	}
	return true, nil
}

// die needs mu held.
func (c *crash) die() {
	c.dead = true
	close(c.killed)
}

func (c *crash) through(cluster string, base http.RoundTripper) http.RoundTripper {
	return roundTripper(func(q *http.Request) (*http.Response, error) {
		hurt, err := c.arrives(q, cluster)
		if err != nil {
			return nil, err
		}
		reply, err := base.RoundTrip(q)
		if !hurt || err != nil {
			return reply, err
		}
		_, _ = io.Copy(io.Discard, reply.Body) // the process never learns the reply
		_ = reply.Body.Close()
		if c.way == replyLost {
			return nil, io.ErrUnexpectedEOF
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if !c.dead {
			c.die()
		}
		return nil, errDead
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(q *http.Request) (*http.Response, error) { return f(q) }

// life is a source with its copies, whose processes are hurt.
type life struct {
	*rig
	namespace string
	crash     *crash
}

// crashActs are the acts of a life, and how one sees that an undisturbed one has come to its end.
var crashActs = []struct {
	name string
	do   func(ctx context.Context, l *life) error
	ends func(s ending) bool
}{
	{"created", func(ctx context.Context, l *life) error {
		source := deployment(l.namespace, "web", func(d *appsv1.Deployment) { d.Spec.Replicas = new(int32(1)) })
		return l.client["home"].Create(ctx, source)
	}, replicatedTo("web:1", "east", "west")},
	{"its image changes", func(ctx context.Context, l *life) error { return l.change(ctx, "home", imageTo("web:2")) },
		replicatedTo("web:2", "east", "west")},
	{"a copy is edited and another deleted", func(ctx context.Context, l *life) error {
		east := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: l.namespace, Name: "web"}}
		return errors.Join(l.change(ctx, "west", imageTo("evil")), l.client["east"].Delete(ctx, east))
	}, replicatedTo("web:2", "east", "west")},
	{"a target is removed", func(ctx context.Context, l *life) error {
		return l.change(ctx, "home", func(d *appsv1.Deployment) { d.Annotations[replication.AnnotationClusters] = "west" })
	}, replicatedTo("web:2", "west")},
	{"the label is removed", func(ctx context.Context, l *life) error {
		return l.change(ctx, "home", func(d *appsv1.Deployment) { delete(d.Labels, replication.LabelReplicate) })
	}, func(s ending) bool {
		return len(s.Copies) == 0 && s.Source != nil && len(s.Source.Finalizers) == 0 && s.Condition == "" &&
			s.Source.Annotations[replication.AnnotationCopies] == ""
	}},
	{"the label is back", func(ctx context.Context, l *life) error {
		return l.change(ctx, "home", func(d *appsv1.Deployment) {
			d.Labels = map[string]string{replication.LabelReplicate: "true"}
			d.Annotations[replication.AnnotationClusters] = "*"
		})
	}, replicatedTo("web:2", "east", "west")},
	{"deleted", func(ctx context.Context, l *life) error {
		source := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: l.namespace, Name: "web"}}
		return l.client["home"].Delete(ctx, source)
	}, func(s ending) bool { return len(s.Copies) == 0 && s.Source == nil }},
}

func replicatedTo(image string, clusters ...string) func(ending) bool {
	return func(s ending) bool {
		for _, c := range s.Copies {
			if c.Spec.Template.Spec.Containers[0].Image != image {
				return false
			}
		}
		if s.Source == nil {
			return false
		}
		available := fmt.Sprintf("True Replicated: generation %d: %d of %d clusters", s.Source.Generation,
			len(clusters), len(clusters))
		return slices.Equal(slices.Sorted(maps.Keys(s.Copies)), clusters) && strings.HasPrefix(s.Condition, available) &&
			len(s.Source.Finalizers) == 1 && s.Source.Annotations[replication.AnnotationCopies] == strings.Join(clusters, ",")
	}
}

func (l *life) change(ctx context.Context, cluster string, how func(*appsv1.Deployment)) error {
	d := &appsv1.Deployment{}
	if err := l.client[cluster].Get(ctx, client.ObjectKey{Namespace: l.namespace, Name: "web"}, d); err != nil {
		return err
	}
	old := d.DeepCopy()
	how(d)
	return l.client[cluster].Patch(ctx, d, client.MergeFrom(old), client.FieldOwner("kubectl-edit"))
}

// live plays all acts and returns how each ended. want, if given, is how each must end.
func (l *life) live(ctx context.Context, want []ending) (endings []ending, err error) {
	if err := l.client["home"].Create(ctx, &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: l.namespace},
	}); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- l.processes(ctx) }()
	defer func() { cancel(); err = errors.Join(err, <-ended) }()
	for i, act := range crashActs {
		err := l.crash.act(ctx)
		if err == nil {
			err = act.do(ctx, l)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", act.name, err)
		}
		ends := act.ends
		if want != nil {
			ends = func(s ending) bool { return cmp.Equal(want[i], s) }
		}
		last, err := l.await(ctx, ends)
		if err != nil {
			diff := ""
			if want != nil {
				diff = cmp.Diff(want[i], last)
			}
			return nil, fmt.Errorf("%s: %w (-undisturbed +got):\n%s", act.name, err, diff)
		}
		endings = append(endings, last)
	}
	return endings, nil
}

// processes runs one process after the other until the context ends.
func (l *life) processes(ctx context.Context) error {
	for ctx.Err() == nil {
		killed, ready := l.crash.begin()
		stop, err := l.start(process{source: "home", grace: time.Minute, namespace: l.namespace, creates: true,
			through: l.crash.through, oneByOne: true, ready: ready})
		if err != nil {
			return err
		}
		select {
		case <-killed:
		case <-ctx.Done():
		}
		if err := stop(); err != nil {
			return err
		}
	}
	return nil
}

func (l *life) await(ctx context.Context, ends func(ending) bool) (last ending, err error) {
	err = lab.Eventually(ctx, time.Minute, func() (err error) {
		if last, err = l.ending(ctx); err == nil && !ends(last) {
			err = errors.New("it doesn't end as it should")
		}
		return err
	})
	return last, err
}
