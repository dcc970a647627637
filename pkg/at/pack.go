package at

import (
	"encoding/hex"
	"reflect"
	"strconv"
	"strings"
	"time"
	"unique"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cnatv1alpha1 "github.com/tenure-dev/tenure/pkg/apis/cnat/v1alpha1"
)

// Packed is an At that waits for its time, as [Pack] makes it: 80 bytes and its name, where the At has 800.
type Packed struct {
	namespace  unique.Handle[string]
	name       string
	due        int64 // in seconds since 1970
	uid        [16]byte
	version    uint64
	created    uint32 // in seconds since 1970
	generation uint32
	rest       *rest // nil for nothing
	pending    bool  // its phase; otherwise it has none yet
	suspended  bool
}

// rest is what few Ats have.
type rest struct {
	schedule         string // "" if it follows from due
	startingDeadline *int64
	timeToLive       *int32
}

// Pack returns a smaller form of an At in a cache, after [Trim]. It does so for Ats that wait for their time, which
// are almost all of those in a cache. It returns nil for other Ats, and for objects of any other kind.
func Pack(object client.Object) *Packed {
	at, ok := object.(*cnatv1alpha1.At)
	if !ok {
		return nil
	}
	p := &Packed{
		namespace: unique.Make(at.Namespace), name: at.Name, suspended: at.Spec.Suspend,
		pending: at.Status.Phase == cnatv1alpha1.AtPending, generation: uint32(at.Generation),
		created: uint32(at.CreationTimestamp.Unix()),
	}
	r := rest{startingDeadline: at.Spec.StartingDeadlineSeconds, timeToLive: at.Spec.TTLSecondsAfterFinished}
	if due, err := ParseSchedule(at.Spec.Schedule); err == nil && written(due.Unix()) == at.Spec.Schedule {
		p.due = due.Unix()
	} else if r.schedule = at.Spec.Schedule; r.schedule == "" {
		return nil
	}
	if r != (rest{}) {
		p.rest = &r
	}
	var err error
	if p.version, err = strconv.ParseUint(at.ResourceVersion, 10, 64); err != nil {
		return nil
	}
	if digits := strings.ReplaceAll(string(at.UID), "-", ""); len(digits) != 2*len(p.uid) {
		return nil
	} else if _, err := hex.Decode(p.uid[:], []byte(digits)); err != nil {
		return nil
	}
	// If unpacking loses something, the At has more than Packed can hold.
	same := *at
	same.TypeMeta = metav1.TypeMeta{}
	if !reflect.DeepEqual(p.unpack(), &same) {
		return nil
	}
	return p
}

// Unpack makes the At again, but for its TypeMeta.
func (p *Packed) Unpack() client.Object { return p.unpack() }

func (p *Packed) unpack() *cnatv1alpha1.At {
	at := &cnatv1alpha1.At{}
	at.Namespace, at.Name, at.Generation = p.namespace.Value(), p.name, int64(p.generation)
	at.UID, at.ResourceVersion = uidOf(p.uid), strconv.FormatUint(p.version, 10)
	at.CreationTimestamp = metav1.Unix(int64(p.created), 0)
	at.Spec.Suspend = p.suspended
	if p.pending {
		at.Status.Phase = cnatv1alpha1.AtPending
	}
	var r rest
	if p.rest != nil {
		r = *p.rest
	}
	if at.Spec.Schedule = r.schedule; r.schedule == "" {
		at.Spec.Schedule = written(p.due)
	}
	if r.startingDeadline != nil {
		at.Spec.StartingDeadlineSeconds = new(*r.startingDeadline)
	}
	if r.timeToLive != nil {
		at.Spec.TTLSecondsAfterFinished = new(*r.timeToLive)
	}
	return at
}

// written returns a schedule in the form that most of them have.
func written(seconds int64) string { return time.Unix(seconds, 0).UTC().Format(time.RFC3339) }

// uidOf writes a UID as API servers do.
func uidOf(b [16]byte) types.UID {
	var text [36]byte
	from := 0
	for i, n := range [...]int{4, 2, 2, 2, 6} {
		to := 2*from + i
		hex.Encode(text[to:], b[from:from+n])
		if from += n; from < len(b) {
			text[to+2*n] = '-'
		}
	}
	return types.UID(text[:])
}
