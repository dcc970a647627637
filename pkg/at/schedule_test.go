package at

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cnatv1alpha1 "github.com/tenure-dev/tenure/pkg/apis/cnat/v1alpha1"
)

func TestParseSchedule(t *testing.T) {
	for _, c := range []struct {
		text string
		want time.Time
	}{
		{"2019-04-12T10:12:00Z", time.Date(2019, 4, 12, 10, 12, 0, 0, time.UTC)},
		{"2019-04-12t10:12:00z", time.Date(2019, 4, 12, 10, 12, 0, 0, time.UTC)},
		{"2019-04-12T12:12:00+02:00", time.Date(2019, 4, 12, 10, 12, 0, 0, time.UTC)},
		{"2019-04-12T10:12:00.123456789Z", time.Date(2019, 4, 12, 10, 12, 0, 123456789, time.UTC)},
	} {
		got, err := ParseSchedule(c.text)
		if err != nil || !got.Equal(c.want) || got.Location() != time.UTC {
			t.Errorf("ParseSchedule(%q) = %v, %v, want %v", c.text, got, err, c.want)
		}
	}
	for _, text := range []string{"", "tomorrow", "2019-04-12", "2019-04-12 10:12:00Z", "2019-02-30T10:12:00Z",
		"2019-04-12T10:12:60Z", "2019-04-12T10:12:00"} {
		if got, err := ParseSchedule(text); err == nil || !strings.Contains(err.Error(), "RFC 3339") {
			t.Errorf("ParseSchedule(%q) = %v, %v, want an error", text, got, err)
		}
	}
	if got, err := ParseSchedule("0000-01-01T00:00:00+01:00"); err == nil || !strings.Contains(err.Error(), "year 0") {
		t.Errorf("before the year 0: %v, %v, want an error that says so", got, err)
	}
}

func FuzzParseSchedule(f *testing.F) {
	for _, seed := range []string{"2019-04-12T10:12:00Z", "2019-04-12t10:12:00.5+02:00", "tomorrow", ""} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		parsed, err := ParseSchedule(text)
		if err != nil {
			return
		}
		again, err := ParseSchedule(parsed.Format(time.RFC3339Nano))
		// A time zone can move a year out of RFC 3339's four digits.
		if year := parsed.Year(); year >= 0 && year <= 9999 && (err != nil || !again.Equal(parsed)) {
			t.Errorf("%q is %v, which reads back as %v, %v", text, parsed, again, err)
		}
	})
}

func TestDueTellsWhenAnAtIsToBeLookedAt(t *testing.T) {
	created := time.Date(2026, 4, 1, 0, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		at   *cnatv1alpha1.At
		want time.Time
	}{
		"pending":                 {anAt(), due},
		"not yet given a phase":   {anAt(func(at *cnatv1alpha1.At) { at.Status.Phase = "" }), due},
		"blocked":                 {anAt(blockedBy(ReasonForeignPod)), created},
		"suspended":               {anAt(suspended), time.Time{}},
		"no schedule can be read": {anAt(schedule("tomorrow")), time.Time{}},
		"running":                 {anAt(running, schedule("2031-01-01T00:00:00Z")), due},
		"running, by somebody else's word": {
			anAt(func(at *cnatv1alpha1.At) { at.Status.Phase = cnatv1alpha1.AtRunning }), created},
		"done": {anAt(done), time.Time{}},
	} {
		t.Run(name, func(t *testing.T) {
			c.at.CreationTimestamp = metav1.NewTime(created)
			if got := Due(c.at); !got.Equal(c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}
