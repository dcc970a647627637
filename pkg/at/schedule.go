package at

import (
	"fmt"
	"strings"
	"time"

	cnatv1alpha1 "github.com/tenure-dev/tenure/pkg/apis/cnat/v1alpha1"
)

// ParseSchedule parses spec.schedule and returns it in UTC.
//
// It accepts what the CRD accepts, also RFC 3339 in lower case, which [time.Parse] refuses. Only times before the year
// 0 in UTC are refused: status.scheduledTime couldn't show them, and the claim would fail.
func ParseSchedule(text string) (time.Time, error) {
	due, err := time.Parse(time.RFC3339Nano, strings.ToUpper(text))
	switch {
	case err != nil:
		return time.Time{}, fmt.Errorf("spec.schedule %q is not an RFC 3339 time such as 2019-04-12T10:12:00Z", text)
	case due.UTC().Year() < 0:
		return time.Time{}, fmt.Errorf("spec.schedule %q is before the year 0 in UTC", text)
	}
	return due.UTC(), nil
}

// Due returns when an At needs a reconcile even if no event comes. Until then, no event of the At itself needs one.
//
//   - A waiting At is due at its schedule, which may have passed. If it has conditions, which may be out of date,
//     it is due at its creation, which means at once.
//   - A RUNNING At, whose Pod may have ended, is due at the schedule by which it was claimed. So the claim makes it
//     due less than a microsecond earlier, since the status has whole ones. If its status has no schedule, somebody
//     else wrote it, and the At is due at its creation.
//   - For any other At the time is zero: it waits for no time.
func Due(at *cnatv1alpha1.At) time.Time {
	due, err := ParseSchedule(at.Spec.Schedule)
	switch {
	case at.Status.Phase == cnatv1alpha1.AtDone:
		return time.Time{}
	case at.Status.Phase == cnatv1alpha1.AtRunning && at.Status.ScheduledTime != nil:
		return at.Status.ScheduledTime.Time
	case at.Status.Phase == cnatv1alpha1.AtRunning: // the status is somebody else's
		return at.CreationTimestamp.Time
	case err != nil || at.Spec.Suspend:
		return time.Time{}
	case len(at.Status.Conditions) > 0:
		return at.CreationTimestamp.Time
	}
	return due
}
