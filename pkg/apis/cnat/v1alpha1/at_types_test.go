package v1alpha1

import "testing"

func TestStampEpochOnlyRaisesAndTellsWhatWasThere(t *testing.T) {
	at := &At{}
	for _, step := range []struct{ stamp, before, want int64 }{{3, 0, 3}, {2, 3, 3}, {0, 3, 3}, {-1, 3, 3}, {7, 3, 7}} {
		if before := at.StampEpoch(step.stamp); before != step.before || at.Status.Epoch != step.want {
			t.Fatalf("stamping %d over %d leaves %d, want %d over %d", step.stamp, before, at.Status.Epoch,
				step.want, step.before)
		}
	}
}
