package at

import (
	"fmt"
	"strings"
	"time"

	cnatv1alpha1 "github.com/tenure-dev/tenure/pkg/apis/cnat/v1alpha1"
)

// ParseSchedule reads spec.schedule and gives it in UTC.
//
// It accepts what the CRD's date-time format lets through: RFC 3339 also in
// lower case, which the format allows and [time.Parse] doesn't.
func ParseSchedule(text string) (time.Time, error) {
	due, err := time.Parse(time.RFC3339Nano, strings.ToUpper(text))
	if err != nil {
		return time.Time{}, fmt.Errorf("spec.schedule %q is not an RFC 3339 time such as 2019-04-12T10:12:00Z", text)
	}
	return due.UTC(), nil
}

// Due tells when there is something to do for an At that no event will tell of: at its schedule, which may be past; at any
// time, which is to say since its creation, if its Pod may have ended meanwhile or its status has a condition that may be
// out of date. It is zero for an At that waits for no time.
func Due(at *cnatv1alpha1.At) time.Time {
	due, err := ParseSchedule(at.Spec.Schedule)
	switch {
	case at.Status.Phase == cnatv1alpha1.AtDone:
		return time.Time{}
	case at.Status.Phase == cnatv1alpha1.AtRunning:
		return at.CreationTimestamp.Time
	case err != nil || at.Spec.Suspend:
		return time.Time{}
	case len(at.Status.Conditions) > 0:
		return at.CreationTimestamp.Time
	}
	return due
}
