package pods

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/tenure-dev/tenure/shard/internal/ownership"
)

// lookAgain is the time between two attempts to list Pods while that is forbidden.
const lookAgain = 10 * time.Minute

// Watch watches the Pods of a namespace that a selector selects. It is safe for concurrent use.
type Watch struct {
	informer toolscache.SharedIndexInformer
}

// NewWatch returns a watch of the Pods. It sends no request until Run. live makes a list-watch list anew after the API
// server was away.
func NewWatch(rc *rest.Config, namespace, selector string,
	live func(toolscache.ListerWatcher) toolscache.ListerWatcher, log logr.Logger) (*Watch, error) {
	c, err := kubernetes.NewForConfig(rc)
	if err != nil {
		return nil, fmt.Errorf("building the client of the Pods: %w", err)
	}
	return newWatch(c, namespace, selector, live, lookAgain, log)
}

func newWatch(c kubernetes.Interface, namespace, selector string,
	live func(toolscache.ListerWatcher) toolscache.ListerWatcher, again time.Duration, log logr.Logger) (*Watch, error) {
	pods := c.CoreV1().Pods(namespace)
	// Every watch begins with a list, where missing rights are noticed. The list is tried again soon, and the server asked
	// rarely.
	var refused error
	var asked time.Time
	informer := toolscache.NewSharedIndexInformer(live(&toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			if refused != nil {
				select {
				case <-time.After(again - time.Since(asked)):
				case <-ctx.Done():
					return nil, refused
				}
			}
			opts.LabelSelector = selector
			list, err := pods.List(ctx, opts)
			if !apierrors.IsForbidden(err) {
				refused = nil
				return list, err
			}
			if refused == nil {
				log.Info("Pods can't be read: a dead replica is noticed only when its lease runs out", "namespace", namespace,
					"error", err.Error())
			}
			refused, asked = err, time.Now()
			return nil, err
		},
		WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			opts.LabelSelector = selector
			return pods.Watch(ctx, opts)
		},
	}), &corev1.Pod{}, 0, nil)
	err := informer.SetTransform(func(obj any) (any, error) {
		if pod, ok := obj.(*corev1.Pod); ok { // only these fields are used
			return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
				Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
			}, Status: corev1.PodStatus{InitContainerStatuses: pod.Status.InitContainerStatuses,
				ContainerStatuses: pod.Status.ContainerStatuses}}, nil
		}
		return obj, nil
	})
	if err == nil {
		// the reflector retries by itself
		err = informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *toolscache.Reflector, err error) {
			log.V(1).Info("watching the Pods failed, trying again", "error", err.Error())
		})
	}
	if err != nil {
		return nil, fmt.Errorf("watching the Pods: %w", err)
	}
	return &Watch{informer: informer}, nil
}

// Run watches until the context ends.
func (w *Watch) Run(ctx context.Context) { w.informer.RunWithContext(ctx) }

// Follow calls put for every known container with a proof, and for every change, until the context ends. When nothing
// more is known of a container, it calls put once with an empty list.
func (w *Watch) Follow(ctx context.Context, put func(ownership.ContainerSeen)) error {
	show := func(obj any, gone bool) {
		if tombstone, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
			obj = tombstone.Obj
		}
		pod, ok := obj.(*corev1.Pod)
		if !ok {
			return
		}
		for _, c := range Ended(pod) {
			if gone {
				c.Ended = nil
			}
			put(c)
		}
	}
	registration, err := w.informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) { show(obj, false) },
		UpdateFunc: func(old, obj any) {
			if old.(*corev1.Pod).UID != obj.(*corev1.Pod).UID { // another Pod of that name replaced it
				show(old, true)
			}
			show(obj, false)
		},
		DeleteFunc: func(obj any) { show(obj, true) },
	})
	if err != nil {
		return fmt.Errorf("following the Pods: %w", err)
	}
	context.AfterFunc(ctx, func() { _ = w.informer.RemoveEventHandler(registration) })
	return nil
}
