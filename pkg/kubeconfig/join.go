package kubeconfig

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"
)

// Join adds the folder to a manager, which looks into it while it runs. It returns a manager for readers of cluster
// Secrets: to them, each file is a Secret of the home cluster. A Secret takes precedence over a file of the same
// name. When the Secret is deleted, the file takes its place, though a finalizer may hold the Secret for long.
func (f *Folder) Join(mgr mcmanager.Manager) (mcmanager.Manager, error) {
	local := mgr.GetLocalManager()
	if err := local.Add(f); err != nil {
		return nil, fmt.Errorf("adding the folder of kubeconfigs: %w", err)
	}
	return &fencedManager{Manager: mgr, local: &joinedLocal{
		Manager: local,
		client:  &joinedClient{Client: local.GetClient(), folder: f},
		cache:   &joinedCache{Cache: local.GetCache(), folder: f},
	}}, nil
}

type joinedLocal struct {
	manager.Manager
	client client.Client
	cache  cache.Cache
}

func (m *joinedLocal) GetClient() client.Client { return m.client }
func (m *joinedLocal) GetCache() cache.Cache    { return m.cache }

// joinedClient reads the folder's files beside the Secrets of clusters. A Secret without [Label] isn't a cluster's,
// so it doesn't hide a file of the same name.
type joinedClient struct {
	client.Client
	folder *Folder
}

func (c *joinedClient) Get(ctx context.Context, key client.ObjectKey, obj client.Object,
	opts ...client.GetOption) error {
	err := c.Client.Get(ctx, key, obj, opts...)
	secret, ok := obj.(*corev1.Secret)
	if !ok || key.Namespace != c.folder.namespace || err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	file := c.folder.Secret(key.Name)
	switch {
	case err == nil && secret.Labels[Label] == "true" && (file == nil || secret.DeletionTimestamp == nil):
		return nil
	case file != nil:
		file.DeepCopyInto(secret)
		return nil
	}
	return apierrors.NewNotFound(corev1.Resource("secrets"), key.Name)
}

// joinedCache also calls watchers of Secrets for the folder's files.
type joinedCache struct {
	cache.Cache
	folder *Folder
}

func (c *joinedCache) GetInformer(
	ctx context.Context, obj client.Object, opts ...cache.InformerGetOption,
) (cache.Informer, error) {
	informer, err := c.Cache.GetInformer(ctx, obj, opts...)
	if _, ok := obj.(*corev1.Secret); !ok || err != nil {
		return informer, err
	}
	return &joinedInformer{Informer: informer, folder: c.folder}, nil
}

type joinedInformer struct {
	cache.Informer
	folder *Folder
}

func (i *joinedInformer) AddEventHandlerWithOptions(
	h toolscache.ResourceEventHandler, o toolscache.HandlerOptions,
) (toolscache.ResourceEventHandlerRegistration, error) {
	registration, err := i.Informer.AddEventHandlerWithOptions(h, o)
	if err == nil {
		i.folder.watch(h)
	}
	return registration, err
}
