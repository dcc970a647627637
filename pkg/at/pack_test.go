package at

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"

	cnatv1alpha1 "github.com/tenure-dev/tenure/pkg/apis/cnat/v1alpha1"
	"github.com/tenure-dev/tenure/test/expect"
	"github.com/tenure-dev/tenure/test/must"
)

// arrived is an At as a cache gets it: read from JSON, and trimmed.
func arrived(t testing.TB, at *cnatv1alpha1.At) *cnatv1alpha1.At {
	t.Helper()
	text, err := json.Marshal(at)
	must.Succeed(t, err)
	read := &cnatv1alpha1.At{}
	must.Succeed(t, json.Unmarshal(text, read))
	_, err = Trim(read)
	must.Succeed(t, err)
	return read
}

func waitingAt(i int) *cnatv1alpha1.At {
	at := &cnatv1alpha1.At{}
	at.Namespace, at.Name, at.UID = fmt.Sprint("team-", i%50), fmt.Sprint("nightly-report-", i), uuid.NewUUID()
	at.ResourceVersion, at.Generation = strconv.Itoa(100_000+i), 1
	at.CreationTimestamp = metav1.NewTime(time.Unix(1_790_000_000+int64(i), 0))
	at.Spec.Schedule = time.Unix(1_900_000_000+int64(i), 0).UTC().Format(time.RFC3339)
	at.Spec.Command = "echo"
	at.Status.Phase = cnatv1alpha1.AtPending
	return at
}

func TestAnAtThatWaitsIsPackedAndIsTheSameAgain(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*cnatv1alpha1.At)
		packed bool
	}{
		"as most are":            {func(*cnatv1alpha1.At) {}, true},
		"new":                    {func(a *cnatv1alpha1.At) { a.Status.Phase = "" }, true},
		"suspended":              {func(a *cnatv1alpha1.At) { a.Spec.Suspend = true }, true},
		"with a deadline":        {func(a *cnatv1alpha1.At) { a.Spec.StartingDeadlineSeconds = new(int64(0)) }, true},
		"with a time to live":    {func(a *cnatv1alpha1.At) { a.Spec.TTLSecondsAfterFinished = new(int32(7)) }, true},
		"another zone":           {func(a *cnatv1alpha1.At) { a.Spec.Schedule = "2030-04-12T10:12:00+02:00" }, true},
		"fractions":              {func(a *cnatv1alpha1.At) { a.Spec.Schedule = "2030-04-12T10:12:00.25Z" }, true},
		"lower case":             {func(a *cnatv1alpha1.At) { a.Spec.Schedule = "2030-04-12t10:12:00z" }, true},
		"before 1970":            {func(a *cnatv1alpha1.At) { a.Spec.Schedule = "0001-01-01T00:00:00Z" }, true},
		"no schedule to be read": {func(a *cnatv1alpha1.At) { a.Spec.Schedule = "soon" }, true},
		"no schedule":            {func(a *cnatv1alpha1.At) { a.Spec.Schedule = "" }, false},
		"no namespace":           {func(a *cnatv1alpha1.At) { a.Namespace = "" }, true},
		"running":                {func(a *cnatv1alpha1.At) { a.Status.Phase = cnatv1alpha1.AtRunning }, false},
		"done":                   {func(a *cnatv1alpha1.At) { a.Status.Phase = cnatv1alpha1.AtDone }, false},
		"written in an epoch":    {func(a *cnatv1alpha1.At) { a.Status.Epoch = 3 }, false},
		"blocked": {func(a *cnatv1alpha1.At) { a.Status.Conditions = []metav1.Condition{{Type: "Blocked"}} },
			false},
		"on its way out": {func(a *cnatv1alpha1.At) { a.DeletionTimestamp = new(metav1.NewTime(time.Unix(1, 0))) },
			false},
		"another kind of UID": {func(a *cnatv1alpha1.At) { a.UID = "uid-1" }, false},
		"a long UID":          {func(a *cnatv1alpha1.At) { a.UID += "0a0b" }, false},
		"a UID in capitals":   {func(a *cnatv1alpha1.At) { a.UID = "AAAAAAAA-0000-0000-0000-000000000000" }, false},
		"no UID":              {func(a *cnatv1alpha1.At) { a.UID = "" }, false},
		"another version":     {func(a *cnatv1alpha1.At) { a.ResourceVersion = "007" }, false},
		"many generations":    {func(a *cnatv1alpha1.At) { a.Generation = 1 << 32 }, false},
		"no creation":         {func(a *cnatv1alpha1.At) { a.CreationTimestamp = metav1.Time{} }, false},
	} {
		t.Run(name, func(t *testing.T) {
			at := waitingAt(1)
			c.change(at)
			read := arrived(t, at)
			p := Pack(read)
			if (p != nil) != c.packed {
				t.Fatalf("packed: %v, want %v", p != nil, c.packed)
			}
			if p == nil {
				return
			}
			expect.Equal(t, "packed and unpacked", read, p.Unpack())
			if one, other := p.unpack(), p.unpack(); one == other ||
				(one.Spec.TTLSecondsAfterFinished != nil &&
					one.Spec.TTLSecondsAfterFinished == other.Spec.TTLSecondsAfterFinished) {
				t.Error("two that unpack it share something")
			}
		})
	}
	whole := waitingAt(1)
	if Pack(whole) != nil {
		t.Error("an At with a command was packed: it would have none afterwards")
	}
	if Pack(&corev1.Pod{}) != nil {
		t.Error("a Pod was packed")
	}
}

// Whatever an At has, it is the same again or not packed.
func FuzzAPackedAtIsTheSameAgain(f *testing.F) {
	f.Add("2030-04-12T10:12:00Z", "PENDING", "7", "6e8b7d3c-0000-4000-8000-000000000001", int64(5))
	f.Add("soon", "", "0", "", int64(-5))
	f.Fuzz(func(t *testing.T, schedule, phase, version, uid string, created int64) {
		at := &cnatv1alpha1.At{}
		at.Spec.Schedule, at.Status.Phase, at.ResourceVersion, at.UID = schedule, cnatv1alpha1.AtPhase(phase),
			version, types.UID(uid)
		at.CreationTimestamp = metav1.NewTime(time.Unix(created%1e10, 0))
		if p := Pack(at); p != nil {
			expect.Equal(t, "packed and unpacked", at, p.unpack())
		}
	})
}

func TestAPackedAtIsSmall(t *testing.T) {
	const many = 20_000
	all := make([]*Packed, many)
	before := heapInUse()
	for i := range all {
		all[i] = Pack(arrived(t, waitingAt(i)))
	}
	each := int(heapInUse()-before) / many
	t.Logf("%d bytes each", each)
	if each > 120 || all[rand.IntN(many)] == nil {
		t.Error("that is too much, or wasn't packed")
	}
	runtime.KeepAlive(all)
}

func heapInUse() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
