package kubeconfig

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"
)

// Fence returns the manager to set up a kubeconfig provider with. Of a Secret, the provider sees only what
// [OfSecret] makes of it. See the package comment for Secrets that are refused.
func Fence(mgr mcmanager.Manager, policy Policy) mcmanager.Manager {
	local := mgr.GetLocalManager()
	return &fencedManager{Manager: mgr, local: &fencedLocal{Manager: local, secrets: &secrets{
		Client: local.GetClient(), policy: policy, last: map[client.ObjectKey][]byte{},
	}}}
}

type fencedManager struct {
	mcmanager.Manager
	local manager.Manager
}

func (m *fencedManager) GetLocalManager() manager.Manager { return m.local }

type fencedLocal struct {
	manager.Manager
	secrets client.Client
}

func (m *fencedLocal) GetClient() client.Client { return m.secrets }

// secrets is a client whose Secrets hold inspected kubeconfigs and nothing else. It is safe for concurrent use.
type secrets struct {
	client.Client
	policy Policy

	mu   sync.Mutex                  // guards last
	last map[client.ObjectKey][]byte // the kubeconfig that was last handed out, until its Secret is deleted
}

func (s *secrets) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	err := s.Client.Get(ctx, key, obj, opts...)
	secret, ok := obj.(*corev1.Secret)
	if !ok || err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil || secret.DeletionTimestamp != nil {
		delete(s.last, key)
		return err
	}
	if access, err := OfSecret(secret, s.policy); err == nil {
		if s.last[key], err = access.Kubeconfig(); err != nil {
			return err
		}
	}
	// Package clusterhealth reports why a Secret is refused. An error here would be retried again and again.
	if s.last[key] == nil {
		delete(s.last, key)
		return apierrors.NewNotFound(corev1.Resource("secrets"), key.Name)
	}
	secret.Data = map[string][]byte{Key: s.last[key]}
	return nil
}
