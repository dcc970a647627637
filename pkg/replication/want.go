package replication

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/tenure-dev/tenure/pkg/text"
)

// forms is the wanted configuration of a copy, in two forms.
type forms struct {
	// Full has spec.replicas. Lean leaves it to its owner in the target. Each carries its own digest.
	Full, Lean *unstructured.Unstructured
}

// template is what all copies of a source have in common.
type template struct {
	object map[string]any
	// unfit is why it can't be applied, "" if it can. For instance, a list has two entries of one key, which a create
	// allows.
	unfit string
	wants map[int32]*forms // by the number of replicas, -1 for as many as the source
}

// newTemplate reduces a source to what is applied: its spec, and its labels and annotations except those that other
// tools reserve for themselves.
func newTemplate(source *appsv1.Deployment, home multicluster.ClusterName, homeUID types.UID) (*template, error) {
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&appsv1.Deployment{Spec: source.Spec})
	if err != nil {
		return nil, fmt.Errorf("converting Deployment %s: %w", client.ObjectKeyFromObject(source), err)
	}
	spec, _ := object["spec"].(map[string]any)
	dropEmpty(spec, "strategy")
	eachContainer(spec, func(container map[string]any) { dropEmpty(container, "resources") })
	annotations := copied(source.Annotations)
	annotations[AnnotationOwnerUID] = string(source.UID)
	annotations[AnnotationSource] = sourceKey(home, client.ObjectKeyFromObject(source))
	if homeUID != "" {
		annotations[AnnotationSourceCluster] = string(homeUID)
	}
	metadata := map[string]any{"namespace": source.Namespace, "name": source.Name, "annotations": annotations}
	if labels := copied(source.Labels); len(labels) > 0 {
		metadata["labels"] = labels
	}
	t := &template{wants: map[int32]*forms{}, object: map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec,
	}}
	if _, err := converter.ObjectToTyped(&unstructured.Unstructured{Object: t.object}); err != nil {
		t.unfit = text.Line(fmt.Sprintf("the source can't be applied anywhere: %v", err), maxText)
	}
	return t, nil
}

// eachContainer does something with each container and init container of a Deployment's spec.
func eachContainer(spec map[string]any, do func(container map[string]any)) {
	for _, list := range []string{"containers", "initContainers"} {
		value, _, _ := unstructured.NestedFieldNoCopy(spec, "template", "spec", list)
		containers, _ := value.([]any)
		for _, c := range containers {
			if container, ok := c.(map[string]any); ok {
				do(container)
			}
		}
	}
}

// dropEmpty removes an empty field that the Go types write though it isn't set. Applying it would make us its owner.
func dropEmpty(from map[string]any, key string) {
	if value, found := from[key]; found {
		if m, ok := value.(map[string]any); value == nil || ok && len(m) == 0 {
			delete(from, key)
		}
	}
}

// By these labels and annotations, tools identify what they manage. If they were copied, a tool in the target's cluster
// would prune, adopt or revert our copies.
var (
	// toolDomains are the domains of such keys, including their subdomains.
	toolDomains = []string{
		"tenure.dev", "kubectl.kubernetes.io", "deployment.kubernetes.io", // ours, kubectl's, the Deployment controller's
		// kubectl apply --prune, kpt
		"applyset.kubernetes.io", "config.kubernetes.io", "config.k8s.io", "cli-utils.sigs.k8s.io",
		"argoproj.io", "fluxcd.io", "cattle.io", "helm.sh", "k14s.io", // Argo CD, Flux, Rancher and Fleet, Helm, kapp
		"operators.coreos.com", "skaffold.dev",
	}
	// toolKeys are single such keys: the managing tool, and the one by which Argo CD tracks objects by default.
	toolKeys = []string{"app.kubernetes.io/managed-by", "app.kubernetes.io/instance"}
)

func isTools(key string) bool {
	domain, _, qualified := strings.Cut(key, "/")
	return slices.Contains(toolKeys, key) || qualified && slices.ContainsFunc(toolDomains, func(d string) bool {
		return domain == d || strings.HasSuffix(domain, "."+d)
	})
}

func copied(from map[string]string) map[string]any {
	to := map[string]any{}
	for key, value := range from {
		if !isTools(key) {
			to[key] = value
		}
	}
	return to
}

// want returns the copy for one cluster. replicas nil means as many as the source. Clusters without images of their
// own share the result.
func (t *template) want(replicas *int32, override override) (*forms, error) {
	if len(override.Images) > 0 {
		return t.build(replicas, override.Images)
	}
	number := ptr.Deref(replicas, -1)
	if made := t.wants[number]; made != nil {
		return made, nil
	}
	made, err := t.build(replicas, nil)
	if err == nil {
		t.wants[number] = made
	}
	return made, err
}

func (t *template) build(replicas *int32, images map[string]string) (*forms, error) {
	full := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(t.object)}
	spec := full.Object["spec"].(map[string]any)
	if replicas != nil {
		spec["replicas"] = int64(*replicas)
	}
	if _, found := spec["replicas"]; !found {
		spec["replicas"] = int64(1) // The API's default.
	}
	eachContainer(spec, func(container map[string]any) {
		if image, found := images[nameOf(container)]; found {
			container["image"] = image
		}
	})
	lean := full.DeepCopy()
	unstructured.RemoveNestedField(lean.Object, "spec", "replicas")
	for _, form := range []*unstructured.Unstructured{full, lean} {
		if err := sign(form); err != nil {
			return nil, err
		}
	}
	return &forms{Full: full, Lean: lean}, nil
}

// sign adds a configuration's digest to it.
func sign(config *unstructured.Unstructured) error {
	data, err := json.Marshal(config.Object)
	if err != nil {
		return fmt.Errorf("taking the digest of the copy of %s: %w", client.ObjectKeyFromObject(config), err)
	}
	digest := sha256.Sum256(data)
	annotations := config.GetAnnotations()
	annotations[AnnotationApplied] = hex.EncodeToString(digest[:8])
	config.SetAnnotations(annotations)
	return nil
}

// is reports whether a digest is that of either form.
func (f *forms) is(digest string) bool {
	return digest != "" && slices.ContainsFunc([]*unstructured.Unstructured{f.Full, f.Lean},
		func(form *unstructured.Unstructured) bool { return form.GetAnnotations()[AnnotationApplied] == digest })
}

// replicas returns the replicas of Full.
func (f *forms) replicas() int32 {
	n, _, _ := unstructured.NestedInt64(f.Full.Object, "spec", "replicas")
	return int32(n)
}
