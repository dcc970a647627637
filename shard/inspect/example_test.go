package inspect_test

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenurev1alpha1 "github.com/tenure-dev/tenure/pkg/apis/tenure/v1alpha1"
	"github.com/tenure-dev/tenure/shard"
	"github.com/tenure-dev/tenure/shard/inspect"
)

// Who holds what, asked from outside of the fleet.
func ExampleRead() {
	scheme := runtime.NewScheme()
	_, _ = clientgoscheme.AddToScheme(scheme), tenurev1alpha1.AddToScheme(scheme)
	home, err := client.New(ctrl.GetConfigOrDie(), client.Options{Scheme: scheme})
	if err != nil {
		panic(err)
	}
	records, err := inspect.Read(context.Background(), home, shard.DefaultNamespace, "")
	if err != nil {
		panic(err)
	}
	for i := range records.Shards {
		s, err := inspect.ReadShard(&records.Shards[i])
		fmt.Println(s.ID, s.Holder, s.Epoch, err)
	}
}
