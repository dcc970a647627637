package inspect_test

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	tenurev1alpha1 "github.com/tenure-dev/tenure/pkg/apis/tenure/v1alpha1"
	"github.com/tenure-dev/tenure/shard"
	"github.com/tenure-dev/tenure/shard/inspect"
)

// Who holds what, asked from outside of the fleet. The client here holds one record; give it a home cluster's
// rest.Config instead.
func ExampleRead() {
	scheme := runtime.NewScheme()
	_, _ = clientgoscheme.AddToScheme(scheme), tenurev1alpha1.AddToScheme(scheme)
	home := fake.NewClientBuilder().WithScheme(scheme).WithObjects(&tenurev1alpha1.Shard{
		ObjectMeta: metav1.ObjectMeta{Namespace: shard.DefaultNamespace, Name: "west.p01"},
		Spec:       tenurev1alpha1.ShardSpec{Cluster: "west", Prefix: "01", Generation: 1},
		Status:     tenurev1alpha1.ShardStatus{Holder: "r1-7fk2qd", Epoch: 7},
	}).Build()

	records, err := inspect.Read(context.Background(), home, shard.DefaultNamespace, "")
	if err != nil {
		panic(err)
	}
	for i := range records.Shards {
		s, err := inspect.ReadShard("", &records.Shards[i])
		fmt.Println(s.ID, s.Holder, s.Epoch, err)
	}
	// Output: west/01 r1-7fk2qd 7 <nil>
}
