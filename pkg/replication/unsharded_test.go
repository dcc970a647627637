package replication

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
)

// homeManager is a manager with a home cluster and nothing else.
type homeManager struct {
	mcmanager.Manager
	home cluster.Cluster
}

func (m homeManager) GetLogger() logr.Logger { return logr.Discard() }

func (m homeManager) GetCluster(context.Context, multicluster.ClusterName) (cluster.Cluster, error) {
	return m.home, nil
}

// A cache that is never filled, or a list that fails, must not make later changes of clusters go unheard.
func TestSourcesAreEnqueuedOnceTheyCanBeListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		list := func(ctx context.Context, _ client.WithWatch, into client.ObjectList, _ ...client.ListOption) error {
			switch tries++; tries {
			case 1:
				<-ctx.Done()
				return ctx.Err()
			case 2:
				return errors.New("not now")
			}
			into.(*appsv1.DeploymentList).Items = []appsv1.Deployment{*aSource()}
			return nil
		}
		c := interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{List: list})
		mgr := homeManager{home: &fakeCluster{client: c}}
		q := workqueue.NewTypedRateLimitingQueue(NewRateLimiter())
		defer q.ShutDown()
		ctx, cancel := context.WithCancel(t.Context())
		changed := make(chan struct{}, 1)
		ended := make(chan struct{})
		go func() { enqueueAll(ctx, mgr, "home", changed, q); close(ended) }()
		changed <- struct{}{}
		time.Sleep(time.Minute)
		synctest.Wait()
		if tries != 3 || q.Len() != 1 {
			t.Errorf("%d sources are enqueued after %d tries, want 1 after 3", q.Len(), tries)
		}
		cancel()
		<-ended
	})
}

// A program that ends may close the channel before it cancels the context.
func TestAClosedChannelEnqueuesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lists := 0
		ctx, cancel := context.WithCancel(t.Context())
		list := func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			lists++
			cancel()
			return nil
		}
		c := interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{List: list})
		q := workqueue.NewTypedRateLimitingQueue(NewRateLimiter())
		defer q.ShutDown()
		changed := make(chan struct{})
		close(changed)
		go enqueueAll(ctx, homeManager{home: &fakeCluster{client: c}}, "home", changed, q)
		synctest.Wait()
		if lists > 0 {
			t.Errorf("sources were listed %d times though no cluster changed", lists)
		}
		cancel()
	})
}

// Nothing else takes the condition off a Deployment whose label was removed while no process ran.
func TestADeploymentThatStillHasAConditionIsEnqueued(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*appsv1.Deployment)
		want   bool
	}{
		"a source":           {func(*appsv1.Deployment) {}, true},
		"no source any more": {unlabelled, false},
		"no source, with the condition left": {func(d *appsv1.Deployment) {
			unlabelled(d)
			d.Status.Conditions = []appsv1.DeploymentCondition{
				{Type: ConditionReplicated, Reason: ReasonInvalidAnnotation}}
		}, true},
	} {
		d := aSource()
		c.change(d)
		if key, got := concerned(d, true); got != c.want || got && key != client.ObjectKeyFromObject(d) {
			t.Errorf("%s: enqueued %v (%s), want %v", name, got, key, c.want)
		}
	}
}
