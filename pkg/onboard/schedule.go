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
	// retryFirst and retryMost bound the pause between two tries, which doubles with each failure.
	retryFirst, retryMost = 10 * time.Second, 10 * time.Minute
	// A new token isn't renewed in the first tenth of its life, and for at least a minute, whatever the clocks say.
	// Otherwise a replica whose clock is far ahead would renew without end. So would one whose cluster grants tokens
	// for seconds.
	settled, settledLeast = 0.1, time.Minute
	// No API server grants a token for less.
	shortestLife = 10 * time.Minute
)

// renewAt returns when a token should be renewed. The share of its life is derived from the Secret. So all replicas
// compute the same time, and clusters that were added together aren't renewed together.
func renewAt(s *corev1.Secret, issued, expires time.Time) time.Time {
	digest := fnv.New64a()
	digest.Write([]byte(string(s.UID) + s.Annotations[SumAnnotation]))
	share := renewFrom + renewSpread*float64(digest.Sum64()%1000)/1000
	return issued.Add(time.Duration(share * float64(expires.Sub(issued))))
}

// settledFor returns for how long a new token of that life isn't renewed.
func settledFor(life time.Duration) time.Duration {
	return max(time.Duration(settled*float64(life)), settledLeast)
}

// retryAfter returns the pause after the given number of failures in a row. It is shorter if the token has little
// time left, but not once it has expired: the cluster hardly takes it any more. random is from 0 to 1.
func retryAfter(failures int, left time.Duration, random float64) time.Duration {
	pause := min(retryFirst<<min(failures-1, 10), retryMost)
	if left > 0 {
		pause = min(pause, max(left/10, retryFirst))
	}
	return pause/2 + time.Duration(random*float64(pause)/2)
}
