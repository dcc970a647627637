package report

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/google/pprof/profile"

	"github.com/tenure-dev/tenure/test/expect"
)

// stack is a sample of so many µs, the innermost function first.
func stack(us int64, functions ...string) *profile.Sample {
	s := &profile.Sample{Value: []int64{1, us * 1000}}
	for _, name := range functions {
		s.Location = append(s.Location, &profile.Location{Line: []profile.Line{{Function: &profile.Function{Name: name}}}})
	}
	return s
}

func TestAProfileSetsFleetsSideBySidePerAt(t *testing.T) {
	ours := []*profile.Profile{ // of two replicas
		{Sample: []*profile.Sample{stack(300, "decode", "read", "read"), stack(100, "read")}},
		{Sample: []*profile.Sample{stack(600, "write")}},
	}
	theirs := []*profile.Profile{{Sample: []*profile.Sample{stack(50, "decode")}}}
	us := func(n float64) *float64 { n /= 1e6; return &n }
	got := NewProfile([]Profiled{
		{"tenure", ours, us(10)}, {"floor", theirs, us(1)}, {"unknown", theirs, nil}, {"blind", nil, us(9)},
	})
	want := &Profile{Fleets: []string{"tenure", "floor"}, Rows: []ProfileRow{
		{everything, []float64{10, 1}, []float64{10, 1}},
		{"write", []float64{6, 0}, []float64{6, 0}},
		{"decode", []float64{3, 1}, []float64{3, 1}},
		{"read", []float64{1, 0}, []float64{4, 0}},
	}}
	expect.Equal(t, "profile", want, got, cmpopts.EquateApprox(1e-9, 0))
	var b strings.Builder
	got.text(&b)
	if lines := strings.Split(b.String(), "\n"); len(lines) != 7 ||
		!strings.Contains(lines[3], "3.0   3.0    1.0  1.0  decode") {
		t.Errorf("the table is:\n%s", b.String())
	}
	if NewProfile([]Profiled{{"blind", nil, us(9)}}) != nil {
		t.Error("a table of nothing")
	}
}
