package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/test/must"
)

func TestAKubeconfigMayComeFromAPipe(t *testing.T) {
	text, err := os.ReadFile(kubeconfigOf(t, "https://127.0.0.1:1"))
	must.Succeed(t, err)
	from, to, err := os.Pipe()
	must.Succeed(t, err)
	defer from.Close()
	go func() {
		_, _ = io.WriteString(to, string(text))
		to.Close()
	}()
	config, err := connection(fmt.Sprintf("/dev/fd/%d", from.Fd()), "", "")
	if err != nil || config.Host != "https://127.0.0.1:1" {
		t.Errorf("%v, %v", config, err)
	}
}

func TestAFileWithoutEndIsNoKubeconfig(t *testing.T) {
	huge := filepath.Join(t.TempDir(), "huge")
	must.Succeed(t, os.WriteFile(huge, nil, 0o600))
	must.Succeed(t, os.Truncate(huge, mostKubeconfig+1)) // it takes no space
	for _, path := range []string{"/dev/full", huge} {
		for _, args := range []string{
			"status --home-kubeconfig ", "--replica=r1 --home-kubeconfig ",
			"why at/a --home-kubeconfig " + kubeconfigOf(t, "https://127.0.0.1:1") + " --kubeconfig ",
			"cluster add west --dry-run client -o yaml --kubeconfig ", "cluster list",
		} {
			all := strings.Fields(args + path)
			if args == "cluster list" {
				all = strings.Fields(args)
				t.Setenv("KUBECONFIG", path)
			}
			refused(t, nil, all, "file "+path+" is no kubeconfig")
		}
	}
}
