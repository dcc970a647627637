package telemetry

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	"k8s.io/client-go/rest"

	"github.com/tenure-dev/tenure/pkg/kubeconfig"
)

// apiServer knows whether an API server continues the traces of its client. It does so only for system:masters and
// system:monitoring (KEP-647), and from Kubernetes 1.33 on. A request of any other client begins a trace of its own,
// which at most links to ours.
// The flag "sampled" would still make the API server put exemplars on its histograms, among them one for each admission
// plugin of each request. That costs it processor time, and its /metrics doesn't even show them.
type apiServer struct {
	config *rest.Config
	once   sync.Once
	not    atomic.Bool // it doesn't continue traces; false while that isn't known
}

// askTimeout bounds the request for our own identity.
const askTimeout = 10 * time.Second

// continues returns at once. The first call asks the API server in the background. An API server that can't answer is
// treated as one that continues traces: that costs some CPU, and no span is lost.
func (s *apiServer) continues() bool {
	s.once.Do(func() {
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
			defer cancel()
			if groups, err := groupsOf(ctx, s.config); err == nil {
				s.not.Store(!slices.Contains(groups, "system:masters") && !slices.Contains(groups, "system:monitoring"))
			}
		}()
	})
	return !s.not.Load()
}

// groupsOf asks an API server for the groups of our own user.
func groupsOf(ctx context.Context, config *rest.Config) ([]string, error) {
	config = rest.CopyConfig(config)
	kubeconfig.Bound(config)
	connection, err := kubeconfig.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	client, err := authenticationclient.NewForConfigAndClient(config, connection)
	if err != nil {
		return nil, err
	}
	self, err := client.SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	return self.Status.UserInfo.Groups, nil
}
