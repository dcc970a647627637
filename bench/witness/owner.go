package witness

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/tenure-dev/tenure/bench/audit"
)

// owners finds each object's key: a Pod's key is its At, every other object is its own.
func (l *ledger) owners(all map[int32][]*atLife) (keyOf []int32) {
	told := make(map[objectID]int32) // by an At's status
	for _, f := range l.atFacts {
		if f.pod != "" {
			at := l.objects.list[f.object]
			told[objectID{at.cluster, "", "pods", at.namespace, f.pod, at.era}] = f.object
		}
	}
	owned := make(map[int32]int32) // by the Pod's owner reference
	ours := make(map[int32]*podFact)
	for _, f := range l.podFacts {
		if f.created && f.ours && !f.maybe {
			ours[f.object] = &f
		}
		if f.ownerAt != "" {
			pod := l.objects.list[f.object]
			owned[f.object] = l.objects.id(objectID{pod.cluster, audit.AtGroup, "ats", pod.namespace, f.ownerAt, pod.era})
		}
	}
	names := l.podNames()
	keyOf = make([]int32, len(l.objects.list))
	for id, o := range l.objects.list {
		keyOf[id] = int32(id)
		if o.resource != "pods" || o.group != "" {
			continue
		}
		at, ok := owned[int32(id)]
		if !ok {
			at, ok = told[o]
		}
		if !ok {
			at, ok = names.owner(o, all)
		}
		if ok {
			keyOf[id] = at
		} else if f := ours[int32(id)]; f != nil {
			l.found.add(Violation{
				Kind: PodWithoutAt, Object: o.String(), Detail: "a Pod of ours belongs to no At that the logs know",
				First: l.lineAt(f.place, f.start, "create"),
			})
		}
	}
	return keyOf
}

// podNames finds Ats by the beginning of their Pods' names.
type podNames map[objectID][]int32

// maxPodBase is how much of an At's name its Pod's name keeps: a DNS label minus a dash and ten digits.
const maxPodBase = 63 - 11

func (l *ledger) podNames() podNames {
	names := make(podNames)
	for id, o := range l.objects.list {
		if o.group != audit.AtGroup || o.resource != "ats" {
			continue
		}
		base := strings.ReplaceAll(o.name, ".", "-")
		o.name = strings.TrimRight(base[:min(len(base), maxPodBase)], "-")
		names[o] = append(names[o], int32(id))
	}
	return names
}

// owner finds the At with the longest name that the Pod's name begins with. The Pod's name ends in a digest of the At's
// UID. If the UIDs are known, it distinguishes Ats whose names begin alike.
func (n podNames) owner(pod objectID, all map[int32][]*atLife) (at int32, ok bool) {
	key := objectID{pod.cluster, audit.AtGroup, "ats", pod.namespace, pod.name, pod.era}
	for cut := strings.LastIndexByte(key.name, '-'); cut > 0; cut = strings.LastIndexByte(key.name, '-') {
		key.name = key.name[:cut]
		found := n[key]
		if len(found) == 1 {
			return found[0], true
		}
		for _, id := range found {
			for _, life := range all[id] {
				digest := sha256.Sum256([]byte(life.uid))
				if life.uid != "" && strings.HasSuffix(pod.name, "-"+hex.EncodeToString(digest[:])[:10]) {
					return id, true
				}
			}
		}
	}
	// A Pod may have its At's name.
	key.name = pod.name
	if found := n[key]; len(found) == 1 {
		return found[0], true
	}
	return 0, false
}
