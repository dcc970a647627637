package kubeconfig_test

import (
	"fmt"

	"github.com/tenure-dev/tenure/pkg/kubeconfig"
)

const text = `
apiVersion: v1
kind: Config
current-context: west
contexts: [{name: west, context: {cluster: west, user: robot}}]
clusters: [{name: west, cluster: {server: "https://west.example.com:6443"}}]
users: [{name: robot, user: {%s}}]
`

// A kubeconfig may hold credentials, and name no file or program that has them.
func ExampleInspect() {
	for _, user := range []string{"token: secret", "tokenFile: /etc/shadow"} {
		_, err := kubeconfig.Inspect(fmt.Appendf(nil, text, user), kubeconfig.Policy{})
		fmt.Println(err)
	}
	// Output:
	// <nil>
	// kubeconfig: users[].user.tokenFile isn't allowed: use token, or start the replicas with --kubeconfig-allow=files
}

// The fleet's servers are named, and others refused.
func ExampleParsePolicy() {
	policy, err := kubeconfig.ParsePolicy(nil, []string{"*.example.org"})
	if err != nil {
		panic(err)
	}
	_, err = kubeconfig.Inspect(fmt.Appendf(nil, text, "token: secret"), policy)
	fmt.Println(err)
	// Output:
	// kubeconfig: clusters[].cluster.server isn't one of --kubeconfig-servers: name one of them, or add it to that flag
}
