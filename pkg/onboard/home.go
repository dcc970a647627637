package onboard

import (
	"context"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// homeRole is the name of the Role, and of its RoleBinding, that replicas have in their home cluster alone
// (config/rbac).
const homeRole = "tenure-home"

// writesRecords is a right that replicas have in their home cluster, and in no workload cluster.
var writesRecords = Right{Verb: "patch", Group: "tenure.dev", Resource: "shards", Subresource: "status",
	Namespace: accountNamespace, Role: homeRole}

// writesAnything is the same right where no fleet needs it. Who has it may do everything.
var writesAnything = Right{Verb: "patch", Group: "tenure.dev", Resource: "shards", Subresource: "status",
	Namespace: metav1.NamespaceSystem}

// isHome reports whether a cluster is the home of a fleet, this one or another. Replicas in home run with a service
// account of the name that the fleet's account has in workload clusters. So in another fleet's home it is that fleet's.
func isHome(ctx context.Context, there client.Client) (bool, error) {
	for _, kind := range []string{kindRole, kindBinding} {
		o := &metav1.PartialObjectMetadata{}
		o.SetGroupVersionKind(rbacv1.SchemeGroupVersion.WithKind(kind))
		o.Namespace, o.Name = accountNamespace, homeRole
		err := there.Get(ctx, client.ObjectKeyFromObject(o), o)
		if err == nil {
			return true, nil
		}
		if !apierrors.IsNotFound(err) {
			return false, fmt.Errorf("reading %s %s/%s: %w", kind, accountNamespace, homeRole, err)
		}
	}
	return false, nil
}

// fleetIsGone says what to do if a cluster looks like the home of a fleet that is gone.
var fleetIsGone = fmt.Sprintf("if that fleet is gone, delete what it left there: kubectl -n %s delete "+
	"role,rolebinding %s", accountNamespace, homeRole)

// othersHome says that a cluster is another fleet's home, and what to do if that fleet is gone.
func (o Onboarder) othersHome() string {
	return fmt.Sprintf("the cluster at %s is another fleet's home (%s)", o.Workload.Host, fleetIsGone)
}

// elsewhere reports whether the cluster isn't this fleet's home, and the credentials in its Secret are of the service
// account there. A kubeconfig that somebody put there may be an admin's, who has every right.
func (k clusterSecrets) elsewhere(ctx context.Context, home client.Client) bool {
	atHome, err := uidOf(ctx, home)
	return err == nil && k.UID != "" && k.UID != atHome && requested(k.Own)
}

// mayServe refuses to add another fleet's home. If this fleet's home isn't known, the cluster may be that one, which is
// allowed: the note says what isn't known.
func (o Onboarder) mayServe(f facts) (note string, err error) {
	switch err := f.failed.isHome; {
	case f.target.UID == f.atHome:
		return "", nil
	case err != nil:
		return "", fmt.Errorf("cluster %s: %w", o.Name, err)
	case !f.isHome:
		return "", nil
	case f.atHome == "":
		return fmt.Sprintf("the cluster at %s is a fleet's home; whether it is this fleet's isn't known without the right "+
			"to get namespace %s of home. If it is another's, take it away by tenure cluster remove %s, without "+
			"--kubeconfig: this fleet has a token of that one's service account", o.Workload.Host, metav1.NamespaceSystem,
			o.Name), nil
	}
	wayOut := "choose another cluster, or let that fleet serve this one"
	if f.known.Own != nil {
		wayOut = fmt.Sprintf("take it away by tenure cluster remove %s, without --kubeconfig", o.Name)
	}
	return "", fmt.Errorf("NAME %s: %s, so nothing was done. This fleet would get a token of that one's service account, "+
		"by which it could read its Secrets and write its records, and to uninstall that fleet would delete this one's "+
		"Ats there: %s", o.Name, o.othersHome(), wayOut)
}
