// Command chart writes the templates of the Helm chart in config/chart from what kustomize makes of config/default, so
// that both install the same. It has a module of its own because its test renders the chart with Helm's own engine.
//
//	make chart
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

func main() {
	root := flag.String("root", "../..", "`folder` of the repository")
	flag.Parse()
	if err := write(*root, filepath.Join(*root, "config", "chart", "templates")); err != nil {
		fmt.Fprintln(os.Stderr, "chart:", err)
		os.Exit(1)
	}
}

// kustomized is what kubectl makes of config/default.
func kustomized(root string) (string, error) {
	kubectl := exec.Command(filepath.Join(root, "bin", "controlplane"), "kubectl", "kustomize",
		filepath.Join(root, "config", "default"))
	kubectl.Stderr = os.Stderr
	out, err := kubectl.Output()
	if err != nil {
		return "", fmt.Errorf("rendering config/default (make controlplane builds what is needed): %w", err)
	}
	return string(out), nil
}

// write replaces the templates: one file for each object.
func write(root, to string) error {
	text, err := kustomized(root)
	if err != nil {
		return err
	}
	files, err := templates(text)
	if err != nil {
		return err
	}
	if err := errors.Join(os.RemoveAll(to), os.MkdirAll(to, 0o755)); err != nil {
		return err
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(to, name), []byte(content), 0o644); err != nil {
			return err
		}
	}
	return nil
}

var (
	kind = regexp.MustCompile(`(?m)^kind: (\w+)$`)
	name = regexp.MustCompile(`(?m)^  name: (\S+)$`)
)

// templates are the files that the objects become.
func templates(rendered string) (map[string]string, error) {
	files := map[string]string{}
	for object := range strings.SplitSeq(rendered, "\n---\n") {
		k, n := kind.FindStringSubmatch(object), name.FindStringSubmatch(object)
		if k == nil || n == nil {
			return nil, fmt.Errorf("an object has no kind or no name: %.200s", object)
		}
		if strings.Contains(object, "{{") {
			return nil, fmt.Errorf("%s %s: has {{ in it, which Helm would take for its own", k[1], n[1])
		}
		if k[1] == "Deployment" {
			var err error
			if object, err = parameters(object); err != nil {
				return nil, err
			}
		}
		files[strings.ToLower(k[1])+"-"+n[1]+".yaml"] = "# Made by make chart from config/default.\n" +
			strings.TrimSuffix(object, "\n") + "\n"
	}
	return files, nil
}

// places are what values.yaml sets in the Deployment.
var places = []struct{ is, becomes string }{
	{`(?m)^  replicas: \d+$`, "  {{- with .Values.replicas }}\n  replicas: {{ . }}\n  {{- end }}"},
	{`(?m)^        image: \S+$`, `        image: {{ .Values.image | quote }}`},
	{`(?m)^(      - args:\n(?:        - --.*\n)+)`,
		"$1        {{- with .Values.args }}\n        {{- toYaml . | nindent 8 }}\n        {{- end }}\n"},
	{`(?m)^(        - name: TENURE_POD\n          value: \S+\n)`,
		"$1        {{- with .Values.env }}\n        {{- toYaml . | nindent 8 }}\n        {{- end }}\n"},
	{`(?m)^          limits:\n            memory: \S+\n          requests:\n(?:            \w+: \S+\n)+`,
		"          limits:\n            memory: {{ .Values.memory.limit | quote }}\n          requests:\n            {{- " +
			"toYaml .Values.requests | nindent 12 }}\n"},
	{`(?m)^(      serviceAccountName: .*\n)`, "      {{- with .Values.priorityClassName }}\n      priorityClassName: {{ " +
		". | quote }}\n      {{- end }}\n$1"},
	{`(?m)^      terminationGracePeriodSeconds: \d+$`,
		"      terminationGracePeriodSeconds: {{ .Values.terminationGracePeriodSeconds }}"},
}

func parameters(deployment string) (string, error) {
	for _, p := range places {
		at := regexp.MustCompile(p.is)
		if n := len(at.FindAllString(deployment, -1)); n != 1 {
			return "", fmt.Errorf("the Deployment has %d places that match %s, want 1", n, p.is)
		}
		deployment = at.ReplaceAllString(deployment, p.becomes)
	}
	return deployment, nil
}
