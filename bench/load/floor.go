package load

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/bits"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"

	"github.com/tenure-dev/tenure/bench/load/feed"
	"github.com/tenure-dev/tenure/pkg/at"
)

// Floor does for each At the three writes that can't be spared, and nothing else: it claims it, makes its Pod, and
// writes DONE when the Pod has ended. It has one watch per kind and cluster to learn of both, no cache, no queue that
// orders keys, no retries and no protection against a second one of its kind. Nothing that serves Ats through the API
// can do with less.
type Floor struct {
	Clusters []*Cluster
	// Workers is how many Ats are worked on at a time.
	Workers int
	// This process is number Part, from 0, of Of processes. Each is sent only its part of the Ats and of the Pods.
	// If Of is 0 there is only one process.
	Part, Of int

	work chan func(context.Context) error
	mu   sync.Mutex // guards claimed
	// claimed has the resourceVersion of each At that we claimed.
	claimed map[Ref]string
}

// Run serves Ats until the context ends. ready is called once it follows everything.
func (f *Floor) Run(ctx context.Context, ready func()) error {
	f.work, f.claimed = make(chan func(context.Context) error, 1<<20), map[Ref]string{}
	group, ctx := errgroup.WithContext(ctx)
	for range f.Workers {
		group.Go(func() error {
			for {
				select {
				case job := <-f.work:
					if err := job(ctx); err != nil && ctx.Err() == nil {
						return err
					}
				case <-ctx.Done():
					return nil
				}
			}
		})
	}
	for _, c := range f.Clusters {
		if f.Of > 1 {
			c.Feed.Only = f.own()
		}
		for kind, on := range map[feed.Kind]func(*Cluster, feed.Event){feed.Ats: f.at, feed.Pods: f.pod} {
			since, err := c.Feed.Now(ctx, kind)
			if err != nil {
				group.Go(func() error { return fmt.Errorf("cluster %s: %w", c.Name, err) }) // it ends the workers, too
				return group.Wait()
			}
			group.Go(func() error {
				if err := c.Feed.Follow(ctx, kind, since, func(e feed.Event) { on(c, e) }); err != nil {
					return fmt.Errorf("cluster %s: %w", c.Name, err)
				}
				return nil
			})
		}
	}
	ready()
	return group.Wait()
}

// own returns the selectors of this process's part: for Ats a range of the hashes of their UIDs, for Pods the slot
// label, whose value is the number of the part here.
func (f *Floor) own() map[feed.Kind][2]string {
	bound := func(part int) string {
		if part == f.Of {
			return "0x10000000000000000"
		}
		at, _ := bits.Div64(uint64(part), 0, uint64(f.Of))
		return fmt.Sprintf("0x%016x", at)
	}
	return map[feed.Kind][2]string{
		feed.Ats: {"shardSelector", fmt.Sprintf("shardRange(object.metadata.uid, '%s', '%s')",
			bound(f.Part), bound(f.Part+1))},
		feed.Pods: {"labelSelector", "tenure.dev/slot=" + f.slot()},
	}
}

func (f *Floor) slot() string { return fmt.Sprintf("%02d", f.Part) }

// at plans the start of a new At.
func (f *Floor) at(c *Cluster, e feed.Event) {
	if e.Type != "ADDED" {
		return
	}
	due, err := time.Parse(time.RFC3339, e.Object.Spec.Schedule)
	if err != nil {
		return // the API server refuses such a schedule
	}
	start := func() {
		f.work <- func(ctx context.Context) error { return f.start(ctx, c, &e.Object) }
	}
	if wait := time.Until(due); wait > 0 {
		time.AfterFunc(wait, start)
		return
	}
	start()
}

// pod plans the end of an At.
func (f *Floor) pod(c *Cluster, e feed.Event) {
	if e.Type != "MODIFIED" || e.Object.Status.Phase != "Succeeded" {
		return
	}
	f.work <- func(ctx context.Context) error { return f.finish(ctx, c, &e.Object) }
}

func (f *Floor) start(ctx context.Context, c *Cluster, at *feed.Object) error {
	m := &at.Metadata
	pod := m.Name + "-" + m.UID[:8]
	now := stamp(time.Now())
	status := object{"phase": "RUNNING", "podName": pod, "scheduledTime": at.Spec.Schedule, "startTime": now}
	version, err := f.write(ctx, c, m.Namespace, m.Name, m.ResourceVersion, status)
	if err != nil {
		return fmt.Errorf("claiming At %s: %w", m.Name, err)
	}
	f.mu.Lock()
	f.claimed[Ref{c.Name, m.Namespace, m.Name}] = version
	f.mu.Unlock()
	err = c.send(ctx, http.MethodPost, feed.Pods.Path(m.Namespace), plainJSON, podOf(m.Name, m.UID, pod, f.slot()), nil)
	if err != nil {
		return fmt.Errorf("making the Pod of At %s: %w", m.Name, err)
	}
	return nil
}

func (f *Floor) finish(ctx context.Context, c *Cluster, pod *feed.Object) error {
	ref := Ref{c.Name, pod.Metadata.Namespace, pod.Owner()}
	f.mu.Lock()
	version, ours := f.claimed[ref]
	delete(f.claimed, ref)
	f.mu.Unlock()
	if !ours {
		return nil
	}
	status := object{
		"phase": "DONE", "podName": pod.Metadata.Name, "result": "Succeeded", "finishTime": stamp(time.Now()),
		"conditions": []object{{
			"type": "Complete", "status": "True", "reason": "Succeeded", "message": "Pod Succeeded",
			"lastTransitionTime": time.Now().UTC().Format(time.RFC3339),
		}},
	}
	if _, err := f.write(ctx, c, ref.Namespace, ref.Name, version, status); err != nil {
		return fmt.Errorf("finishing At %s: %w", ref.Name, err)
	}
	return nil
}

// write replaces an At's status, and returns the At's new resourceVersion.
func (f *Floor) write(ctx context.Context, c *Cluster, namespace, name, version string, status object) (string, error) {
	var answer feed.Object
	err := c.send(ctx, http.MethodPut, feed.Ats.Path(namespace)+"/"+name+"/status", plainJSON, object{
		"apiVersion": "cnat.programming-kubernetes.info/v1alpha1", "kind": "At",
		"metadata": object{"namespace": namespace, "name": name, "resourceVersion": version},
		"status":   status,
	}, &answer)
	return answer.Metadata.ResourceVersion, err
}

// container is what the reconciler's default settings add to a Pod's container.
var container = func() object {
	defaults := at.RestrictedPods()
	return object{
		"resources":       encoded(corev1.ResourceRequirements{Requests: defaults.Requests, Limits: defaults.Limits}),
		"securityContext": encoded(defaults.SecurityContext),
	}
}()

func encoded(value any) json.RawMessage {
	data, err := json.Marshal(value)
	if err != nil {
		panic(err) // a value of ours
	}
	return data
}

// podOf makes a Pod as large as the reconciler's.
func podOf(at, uid, name, slot string) object {
	command := object{"name": "command", "image": "busybox", "command": []string{"/bin/sh", "-c", "echo " + at}}
	maps.Copy(command, container)
	return object{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": object{
			"name": name, "labels": object{"cnat.programming-kubernetes.info/at": at, "tenure.dev/slot": slot},
			"ownerReferences": []object{{
				"apiVersion": "cnat.programming-kubernetes.info/v1alpha1", "kind": "At", "name": at, "uid": uid,
				"controller": true, "blockOwnerDeletion": false,
			}},
		},
		"spec": object{
			"restartPolicy": "Never", "automountServiceAccountToken": false,
			"containers": []object{command},
		},
	}
}
