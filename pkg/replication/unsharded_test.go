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
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
)

// homeManager, homeCluster and homeClient are a manager of which only the lists of sources are used.
type (
	homeManager struct {
		mcmanager.Manager
		home homeCluster
	}
	homeCluster struct {
		cluster.Cluster
		client homeClient
	}
	homeClient struct {
		client.Client
		list func(ctx context.Context, into *appsv1.DeploymentList) error
	}
)

func (m homeManager) GetLogger() logr.Logger   { return logr.Discard() }
func (c homeCluster) GetClient() client.Client { return c.client }

func (m homeManager) GetCluster(context.Context, multicluster.ClusterName) (cluster.Cluster, error) {
	return m.home, nil
}

func (c homeClient) List(ctx context.Context, into client.ObjectList, _ ...client.ListOption) error {
	return c.list(ctx, into.(*appsv1.DeploymentList))
}

// A cache that is never filled, or a list that fails, must not make later changes of clusters go unheard.
func TestSourcesAreEnqueuedOnceTheyCanBeListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		list := func(ctx context.Context, into *appsv1.DeploymentList) error {
			switch tries++; tries {
			case 1:
				<-ctx.Done()
				return ctx.Err()
			case 2:
				return errors.New("not now")
			}
			into.Items = []appsv1.Deployment{*aSource()}
			return nil
		}
		mgr := homeManager{home: homeCluster{client: homeClient{list: list}}}
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
