package informer

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var _ client.Reader = (*Store)(nil)

// AwaitSync waits until the first list is in.
func (s *Store) AwaitSync(ctx context.Context) error {
	select {
	case <-s.synced:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Get copies an object to out, once the Store is synced.
func (s *Store) Get(ctx context.Context, key client.ObjectKey, out client.Object, opts ...client.GetOption) error {
	if err := s.AwaitSync(ctx); err != nil {
		return s.notSynced(err)
	}
	var o client.GetOptions
	o.ApplyOptions(opts)
	if !s.cfg.Namespaced {
		key.Namespace = ""
	}
	s.mu.RLock()
	found := s.find(key)
	s.mu.RUnlock()
	if found == nil {
		// As with controller-runtime's caches, the kind stands for the resource.
		return apierrors.NewNotFound(schema.GroupResource{Group: s.cfg.Kind.Group, Resource: s.cfg.Kind.Kind}, key.Name)
	}
	from, to := reflect.ValueOf(s.lent(found, o.UnsafeDisableDeepCopy)), reflect.ValueOf(out)
	if !from.Type().AssignableTo(to.Type()) {
		return fmt.Errorf("%s: the cache holds %s, not %s", s.cfg.Kind.Kind, from.Type(), to.Type())
	}
	to.Elem().Set(from.Elem())
	return nil
}

// List copies what the options select to out, once the Store is synced.
func (s *Store) List(ctx context.Context, out client.ObjectList, opts ...client.ListOption) error {
	if err := s.AwaitSync(ctx); err != nil {
		return s.notSynced(err)
	}
	var o client.ListOptions
	o.ApplyOptions(opts)
	if !s.cfg.Namespaced {
		o.Namespace = "" // as controller-runtime's caches do
	}
	if o.Continue != "" {
		return errors.New("a list of what a cache holds can't be continued: it has no pages")
	}
	found, err := s.selected(&o)
	if err != nil {
		return err
	}
	limit := len(found)
	if o.Limit > 0 {
		limit = int(min(o.Limit, int64(limit)))
	}
	items := make([]runtime.Object, 0, limit)
	for _, k := range found {
		if len(items) == limit {
			break
		}
		if o.LabelSelector == nil || o.LabelSelector.Matches(labels.Set(opened(k).GetLabels())) {
			items = append(items, s.lent(k, o.UnsafeDisableDeepCopy))
		}
	}
	if err := meta.SetList(out, items); err != nil {
		return err
	}
	out.SetContinue("continue-not-supported") // as controller-runtime's caches do
	return nil
}

func (s *Store) notSynced(err error) error {
	return apierrors.NewTimeoutError(fmt.Sprintf("the cache of %s isn't synced yet: %v", s.cfg.Kind.Kind, err), 0)
}

// selected returns the objects of a list, before its label selector and its limit are applied.
func (s *Store) selected(o *client.ListOptions) ([]kept, error) {
	if o.FieldSelector != nil {
		return s.having(o.FieldSelector, o.Namespace)
	}
	return s.in(o.Namespace), nil
}

// lent returns what a reader gets of an object: a copy, unless it has requested the object itself.
func (s *Store) lent(k kept, itself *bool) client.Object {
	o := opened(k)
	if shared, whole := k.(client.Object); whole {
		if ptr.Deref(itself, false) {
			return o
		}
		o = shared.DeepCopyObject().(client.Object) // it is a copy of one
	}
	o.GetObjectKind().SetGroupVersionKind(s.cfg.Kind)
	return o
}
