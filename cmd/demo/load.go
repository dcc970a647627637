package main

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cnatv1alpha1 "github.com/tenure-dev/tenure/pkg/apis/cnat/v1alpha1"
	"github.com/tenure-dev/tenure/test/lab"
)

const (
	// writersPerCluster is how many creates are in flight at a time.
	writersPerCluster = 16
	// runTimeAnnotation tells KWOK how long to let the Pod run.
	runTimeAnnotation = "tenure.dev/kwok-duration"
)

var runTimes = []string{"1s", "2s", "3s"}

// atID names an At among all clusters.
type atID struct{ cluster, namespace, name string }

// order is one At to be created.
type order struct {
	cluster string
	at      *cnatv1alpha1.At
}

// planAts returns the Ats to create. They are spread over the clusters. Half are due at start, the others one after
// the other over the spread. Due times are whole seconds.
func planAts(count int, start time.Time, spread time.Duration) []order {
	orders := make([]order, count)
	late := count - count/2
	for i := range orders {
		due := start
		if n := i - count/2; n >= 0 {
			due = start.Add(spread * time.Duration(n+1) / time.Duration(late))
		}
		runTime := runTimes[i%len(runTimes)]
		at := &cnatv1alpha1.At{Spec: cnatv1alpha1.AtSpec{
			Schedule: due.UTC().Truncate(time.Second).Format(time.RFC3339),
			Command:  fmt.Sprintf("echo this is number %d; sleep %s", i+1, runTime[:1]),
		}}
		at.ObjectMeta = metav1.ObjectMeta{
			Namespace:   atNamespaces[i/len(workloadClusters)%len(atNamespaces)],
			Name:        fmt.Sprintf("job-%03d", i+1),
			Annotations: map[string]string{runTimeAnnotation: runTime},
		}
		orders[i] = order{cluster: workloadClusters[i%len(workloadClusters)], at: at}
	}
	return orders
}

// create sends the orders.
func create(ctx context.Context, f *lab.Fleet, orders []order) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(writersPerCluster * len(workloadClusters))
	for _, o := range orders {
		group.Go(func() error {
			if err := f.Client(o.cluster).Create(ctx, o.at); err != nil {
				return fmt.Errorf("creating At %s/%s in cluster %s: %w", o.at.Namespace, o.at.Name, o.cluster, err)
			}
			return nil
		})
	}
	return group.Wait()
}
