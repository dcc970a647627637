package kubeconfig

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tenure-dev/tenure/test/must"
)

// adding is a manager that takes whatever is added to it.
type adding struct{ manager.Manager }

func (adding) Add(manager.Runnable) error { return nil }
func (adding) GetControllerOptions() config.Controller {
	return config.Controller{MaxConcurrentReconciles: 1}
}

// A controller's own retries come ever more rarely. After hours of them a file that comes is noticed as soon as after
// the first.
func TestAFileThatComesHoursLaterIsNoticedWithinHalfAMinute(t *testing.T) {
	c, err := clientcmd.Load(naming(t, "", filepath.Join(t.TempDir(), "token"), "", ""))
	must.Succeed(t, err)
	token := c.AuthInfos["c"].TokenFile
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "west"}, Data: map[string][]byte{Key: write(t, c)},
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		defer synctest.Wait()
		defer stop()
		fenced := &fencedLocal{Manager: adding{}, secrets: newSecrets(fake.NewFakeClient(secret), Policy{Files: true}, 0)}
		key, connected := client.ObjectKeyFromObject(secret), false
		provider, err := controller.NewUnmanaged("provider", controller.Options{
			Reconciler: reconcile.Func(func(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
				err := fenced.GetClient().Get(ctx, key, &corev1.Secret{})
				connected = err == nil
				return reconcile.Result{}, err
			}),
		})
		must.Succeed(t, err)
		must.Succeed(t, fenced.Add(provider))
		go func() {
			if err := provider.Start(ctx); err != nil {
				t.Error(err)
			}
		}()
		synctest.Wait()
		fenced.secrets.queue.Add(reconcile.Request{NamespacedName: key})
		time.Sleep(3 * time.Hour)
		synctest.Wait()
		if connected {
			t.Fatal("connected without its token")
		}
		must.Succeed(t, os.WriteFile(token, []byte("secret"), 0o600))
		time.Sleep(readAgain + time.Second)
		synctest.Wait()
		if !connected {
			t.Errorf("its token came, and %v later it isn't connected", readAgain)
		}
	})
}

// With --kubeconfig-allow=files an inspection reads files, and the volume of one may hang.
func TestAFileThatIsReadForLongHoldsUpNoOtherCluster(t *testing.T) {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "west"},
		Data:       map[string][]byte{Key: naming(t, "", "", "", "")},
	}
	s := newSecrets(fake.NewFakeClient(secret), Policy{}, 0)
	inspect, unlocked := s.inspect, false
	s.inspect = func(secret *corev1.Secret) (*Access, error) {
		if unlocked = s.mu.TryLock(); unlocked {
			s.mu.Unlock()
		}
		return inspect(secret)
	}
	must.Succeed(t, s.Get(t.Context(), client.ObjectKeyFromObject(secret), &corev1.Secret{}))
	if !unlocked {
		t.Error("a Secret is inspected under the lock that all Secrets share")
	}
}

// One that can't be listed takes a worker of the provider.
func TestClustersAreEngagedSideBySide(t *testing.T) {
	if n := (&fencedLocal{Manager: adding{}}).GetControllerOptions().MaxConcurrentReconciles; n < 2 {
		t.Errorf("the provider has %d worker", n)
	}
}
