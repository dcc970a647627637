package v1alpha1

import "testing"

func TestStampEpochOnlyRaises(t *testing.T) {
	at := &At{}
	for _, step := range []struct{ stamp, want int64 }{{3, 3}, {2, 3}, {0, 3}, {-1, 3}, {7, 7}} {
		at.StampEpoch(step.stamp)
		if at.Status.Epoch != step.want {
			t.Fatalf("after stamping %d the epoch is %d, want %d", step.stamp, at.Status.Epoch, step.want)
		}
	}
}
