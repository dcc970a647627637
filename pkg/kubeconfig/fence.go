package kubeconfig

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"
)

const (
	// readAgain is when a Secret with a passing refusal is read again. The provider's own retries come ever more
	// rarely, up to 17 minutes apart.
	readAgain = 30 * time.Second
	// engagedAtOnce is how many clusters the provider may be engaging at a time. One that can't be listed takes a worker
	// for as long as that lasts, if an index needs its objects.
	engagedAtOnce = 100
)

// Fence returns the manager to set up a kubeconfig provider with. Of a Secret, the provider sees only what
// [OfSecret] makes of it. See the package comment for Secrets that are refused. grace is how long a Secret may be away
// and still count as the same when it comes back. Clusters are engaged side by side.
func Fence(mgr mcmanager.Manager, policy Policy, grace time.Duration) mcmanager.Manager {
	local := mgr.GetLocalManager()
	return &fencedManager{Manager: mgr, local: &fencedLocal{
		Manager: local, secrets: newSecrets(local.GetClient(), policy, grace),
	}}
}

type fencedManager struct {
	mcmanager.Manager
	local manager.Manager
}

func (m *fencedManager) GetLocalManager() manager.Manager { return m.local }

type fencedLocal struct {
	manager.Manager
	secrets *secrets
}

func (m *fencedLocal) GetClient() client.Client { return m.secrets }

func (m *fencedLocal) GetControllerOptions() config.Controller {
	options := m.Manager.GetControllerOptions()
	options.MaxConcurrentReconciles = engagedAtOnce
	return options
}

// Add adds the provider's controller, and gets hold of its queue.
func (m *fencedLocal) Add(r manager.Runnable) error {
	if c, ok := r.(controller.Controller); ok {
		if err := c.Watch(source.Func(m.secrets.use)); err != nil {
			return err
		}
	}
	return m.Manager.Add(r)
}

// secrets is a client whose Secrets hold inspected kubeconfigs and nothing else. It is safe for concurrent use.
type secrets struct {
	client.Client
	inspect func(*corev1.Secret) (*Access, error)
	grace   time.Duration

	mu    sync.Mutex // guards what follows
	last  map[client.ObjectKey]*handedOut
	queue workqueue.TypedRateLimitingInterface[reconcile.Request] // the provider's, nil before it starts
}

// handedOut is the kubeconfig of a Secret that was last handed out. It is kept until the Secret has been away for the
// grace.
type handedOut struct {
	kubeconfig []byte
	away       *time.Timer // nil while the Secret is there
}

func newSecrets(inner client.Client, policy Policy, grace time.Duration) *secrets {
	inspect := func(secret *corev1.Secret) (*Access, error) { return OfSecret(secret, policy) }
	return &secrets{Client: inner, inspect: inspect, grace: grace, last: map[client.ObjectKey]*handedOut{}}
}

// use takes the provider's queue. It is a source of the provider's controller, which is how one gets hold of a queue.
func (s *secrets) use(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue = queue
	return nil
}

func (s *secrets) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	err := s.Client.Get(ctx, key, obj, opts...)
	secret, ok := obj.(*corev1.Secret)
	if !ok || err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	if err != nil || secret.DeletionTimestamp != nil {
		s.gone(key)
		return err
	}
	access, refusal := s.inspect(secret) // without the lock, since it may read files
	var fresh *handedOut
	if refusal == nil {
		kubeconfig, err := access.Kubeconfig()
		if err != nil {
			return err
		}
		fresh = &handedOut{kubeconfig: kubeconfig}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if fresh != nil {
		s.last[key] = fresh
	}
	last := s.last[key]
	if last != nil && last.away != nil { // it is back
		last.away.Stop()
		last.away = nil
	}
	switch {
	case Passing(refusal): // an error is tried again, and leaves a cluster that is connected as it is
		if s.queue != nil {
			s.queue.AddAfter(reconcile.Request{NamespacedName: key}, readAgain)
		}
		return refusal
	case last == nil: // package clusterhealth reports why
		return apierrors.NewNotFound(corev1.Resource("secrets"), key.Name)
	}
	secret.Data = map[string][]byte{Key: last.kubeconfig}
	return nil
}

// gone forgets a Secret that is away, after the grace.
func (s *secrets) gone(key client.ObjectKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := s.last[key]
	if last == nil || last.away != nil {
		return
	}
	last.away = time.AfterFunc(s.grace, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.last[key] == last && last.away != nil {
			delete(s.last, key)
		}
	})
}
