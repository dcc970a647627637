package kubeconfig

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/tenure-dev/tenure/pkg/text"
)

// Annotations of a cluster's Secret that replace a replica's flags of the same names for that cluster.
const (
	QPSAnnotation    = "tenure.dev/cluster-qps"
	BurstAnnotation  = "tenure.dev/cluster-burst"
	WritesAnnotation = "tenure.dev/cluster-concurrent-writes"
)

// Limits bound what one replica asks of one workload cluster. The zero value bounds nothing.
type Limits struct {
	// QPS is how many requests a second it sends on average; 0 is any number.
	QPS float64
	// Burst is how many it sends at once after it has sent none for a while; 0 is as many as QPS.
	Burst int
	// Writes is how many writes it waits for at a time; 0 is any number.
	Writes int
}

// ErrLimited is the error of a request whose time ran out while it waited for the [Limits] of its cluster. It says
// nothing about the cluster.
var ErrLimited = errors.New("the Limits of what is asked of the cluster (QPS, Writes) left no time for it; raise them")

// Bucket returns the size of the token bucket, in requests.
func (l Limits) Bucket() int {
	if l.Burst > 0 {
		return l.Burst
	}
	return max(1, int(math.Ceil(min(l.QPS, mostLimit))))
}

// mostLimit is the largest value of a limit. More would be no limit any more.
const mostLimit = 1_000_000

// leastQPS is the lowest rate, in requests a second, at which a replica can still work.
const leastQPS = 0.1

func sensible(qps float64) bool { return qps == 0 || qps >= leastQPS && qps <= mostLimit }

// Validate returns what is wrong with the limits, by field.
func (l Limits) Validate() error {
	var wrong []error
	if !sensible(l.QPS) {
		wrong = append(wrong, fmt.Errorf("QPS %v: must be 0 (no limit), or from %v to %d requests a second", l.QPS,
			leastQPS, mostLimit))
	}
	count := func(field string, n int) {
		if n < 0 || n > mostLimit {
			wrong = append(wrong, fmt.Errorf("%s %d: must be from 0 to %d", field, n, mostLimit))
		}
	}
	count("Burst", l.Burst)
	count("Writes", l.Writes)
	return errors.Join(wrong...)
}

// LimitsOf returns the limits of a Secret's cluster: from its annotations, or from the flags where there is none.
// If any annotation can't be used, the flags hold for all limits. The error then says which one it is, and what to
// write instead.
func LimitsOf(secret *corev1.Secret, flags Limits) (Limits, error) {
	limits := flags
	var wrong []string
	refuse := func(name, want string) {
		wrong = append(wrong, fmt.Sprintf("annotation %s: %q must be 0 (no limit) or %s to %d", name,
			text.Line(secret.Annotations[name], 40), want, mostLimit))
	}
	if value, found := secret.Annotations[QPSAnnotation]; found {
		qps, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
		if err != nil || !sensible(qps) {
			refuse(QPSAnnotation, "a number of requests a second, such as 50, from 0.1")
		}
		limits.QPS = qps
	}
	for _, count := range []struct {
		name string
		into *int
	}{{BurstAnnotation, &limits.Burst}, {WritesAnnotation, &limits.Writes}} {
		if value, found := secret.Annotations[count.name]; found {
			n, err := strconv.Atoi(strings.TrimSpace(value))
			if err != nil || n < 0 || n > mostLimit {
				refuse(count.name, "a whole number from 1")
			}
			*count.into = n
		}
	}
	if len(wrong) > 0 {
		return flags, fmt.Errorf("Secret %s/%s: %s; until that is corrected or removed, the values of the replicas' flags "+
			"hold",
			secret.Namespace, secret.Name, strings.Join(wrong, "; "))
	}
	return limits, nil
}

// String returns the limits in words.
func (l Limits) String() string {
	var all []string
	if l.QPS > 0 {
		all = append(all, fmt.Sprintf("%v requests/s, %d at once", l.QPS, l.Bucket()))
	}
	if l.Writes > 0 {
		all = append(all, fmt.Sprintf("%d writes at a time", l.Writes))
	}
	if len(all) == 0 {
		return "no limit"
	}
	return strings.Join(all, ", ")
}
