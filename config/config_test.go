package config

import (
	"strings"
	"testing"
	"testing/fstest"
)

func TestWhatIsNotUnderstoodIsRefusedAndNamed(t *testing.T) {
	const (
		head   = "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [a.yaml]\n"
		remove = "patches:\n- patch: |\n    $patch: delete\n    apiVersion: v1\n    kind: ConfigMap\n    metadata: {name: %}\n"
	)
	for name, c := range map[string]struct{ kustomization, want string }{
		"a name prefix":       {head + "namePrefix: x-\n", "namePrefix"},
		"a patch with target": {head + "patches:\n- target: {kind: ConfigMap}\n  patch: x\n", "target"},
		"another patch":       {head + "patches:\n- patch: '{\"apiVersion\": \"v1\", \"kind\": \"ConfigMap\", \"metadata\": {\"name\": \"a\"}}'\n", "$patch"},
		"a change":            {head + "patches:\n- patch: '{\"kind\": \"ConfigMap\", \"data\": {}}'\n", "data"},
		"what isn't there":    {head + strings.Replace(remove, "%", "b", 1), "ConfigMap b: 0 objects are that, want 1"},
		"a component":         {strings.Replace(head, "Kustomization", "Component", 1), "is kustomize.config.k8s.io/v1beta1 Component"},
		"no file":             {strings.Replace(head, "a.yaml", "b.yaml", 1), "f/b.yaml isn't built into this program"},
		"no folder":           {strings.Replace(head, "a.yaml", "../b", 1), "b/kustomization.yaml isn't built into this program"},
	} {
		from := fstest.MapFS{
			"f/kustomization.yaml": {Data: []byte(c.kustomization)},
			"f/a.yaml":             {Data: []byte("# nothing\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n")},
		}
		if all, err := render(from, "f"); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, %v, want %q", name, all, err, c.want)
		}
	}
	from := fstest.MapFS{
		"f/kustomization.yaml": {Data: []byte(head + strings.Replace(remove, "%", "a", 1))},
		"f/a.yaml":             {Data: []byte("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n---\napiVersion: v1\nkind: Secret\nmetadata: {name: a}\n")},
	}
	if all, err := render(from, "f"); err != nil || len(all) != 1 || all[0].GetKind() != "Secret" {
		t.Errorf("%v, %v", all, err)
	}
}
