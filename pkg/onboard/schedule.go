package onboard

import (
	"hash/fnv"
	"time"

	corev1 "k8s.io/api/core/v1"
)

const (
	// A token is renewed when three quarters to four fifths of its life are over: late enough not to be wasteful, and
	// before list and check call it soon.
	renewFrom, renewSpread = 0.75, 0.05
	// retryFirst and retryMost are between two tries; after each that fails it is twice as long.
	retryFirst, retryMost = 10 * time.Second, 10 * time.Minute
	// A new token isn't renewed in the first tenth of its life, and for a minute at least, whatever the clocks say: a
	// replica whose clock is far ahead would never stop, nor would a cluster that grants tokens for seconds let it.
	settled, settledLeast = 0.1, time.Minute
	// No API server grants a token for less.
	shortestLife = 10 * time.Minute
)

// renewAt is when a token is to be renewed. Where in the last part of its life that is comes from the Secret itself:
// all replicas find the same time, whoever renews, and clusters that were added together aren't renewed together.
func renewAt(s *corev1.Secret, issued, expires time.Time) time.Time {
	digest := fnv.New64a()
	digest.Write([]byte(string(s.UID) + s.Annotations[SumAnnotation]))
	share := renewFrom + renewSpread*float64(digest.Sum64()%1000)/1000
	return issued.Add(time.Duration(share * float64(expires.Sub(issued))))
}

// settledFor is how long a token of that life isn't renewed again.
func settledFor(life time.Duration) time.Duration {
	return max(time.Duration(settled*float64(life)), settledLeast)
}

// retryAfter is the pause after the given number of failures in a row, with so much of the token's life left; random is
// from 0 to 1. What has little time left is tried more often.
func retryAfter(failures int, left time.Duration, random float64) time.Duration {
	pause := retryMost
	if doubled := retryFirst << min(failures-1, 10); doubled < pause {
		pause = doubled
	}
	pause = min(pause, max(left/10, retryFirst))
	return pause/2 + time.Duration(random*float64(pause)/2)
}
