package main

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/tenure-dev/tenure/bench/witness"
)

var atResource = schema.GroupVersionResource{Group: "cnat.programming-kubernetes.info", Version: "v1alpha1", Resource: "ats"}

// listAts reads all Ats of a cluster, page by page.
func listAts(cluster, kubeconfig string) ([]witness.At, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig of %s: %w", cluster, err)
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", cluster, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	var ats []witness.At
	for options := (metav1.ListOptions{Limit: 500}); ; {
		page, err := client.Resource(atResource).List(ctx, options)
		if err != nil {
			return nil, fmt.Errorf("listing the Ats of %s: %w", cluster, err)
		}
		for _, it := range page.Items {
			ats = append(ats, newAt(cluster, it.Object))
		}
		if options.Continue = page.GetContinue(); options.Continue == "" {
			return ats, nil
		}
	}
}

func newAt(cluster string, o map[string]any) witness.At {
	text := func(path ...string) string {
		s, _, _ := unstructured.NestedString(o, path...)
		return s
	}
	return witness.At{
		Cluster: cluster, Namespace: text("metadata", "namespace"), Name: text("metadata", "name"),
		UID: text("metadata", "uid"), Schedule: text("spec", "schedule"), Phase: text("status", "phase"),
	}
}
