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

// Due reports whether there is something to do for an At now, rather than at a later time or at an event: its time has
// come, or it was started and its Pod may have ended.
func Due(at *cnatv1alpha1.At, now time.Time) bool {
	switch at.Status.Phase {
	case cnatv1alpha1.AtRunning:
		return true
	case cnatv1alpha1.AtDone:
		return false
	}
	due, err := ParseSchedule(at.Spec.Schedule)
	return err == nil && !at.Spec.Suspend && !now.Before(due)
}
