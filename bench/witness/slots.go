package witness

import (
	"cmp"
	"fmt"

	"github.com/tenure-dev/tenure/bench/audit"
)

// key is what decides to which shard an object belongs: the UID of its owner if it has one, otherwise its own.
type key struct {
	uid   string
	owned bool
}

// shownKey is a key that a line shows for an object.
type shownKey struct {
	key

	object int32
}

// keyIn returns the key that an event shows. Its UID is empty if it shows none.
func keyIn(e *Event) key {
	b := cmp.Or(e.Body, &Body{})
	if owner := cmp.Or(b.CopyOf, b.OwnerUID); owner != "" {
		return key{owner, true}
	}
	return key{cmp.Or(b.UID, e.UID), false}
}

// learnKey remembers the key that a committed write shows, whoever sent it, and which objects may have others, since a
// write of them may have been committed.
func (l *ledger) learnKey(e *Event) {
	k := keyIn(e)
	if e.Outcome() == audit.Unknown && e.Verb != "delete" {
		l.unsure[l.objects.id(l.objectOf(e))] = true
	}
	if e.Outcome() != audit.Committed || e.Body == nil || k.uid == "" || !k.owned && !e.IsAt() && !e.IsDeployment() {
		return
	}
	shown := shownKey{k, l.objects.id(l.objectOf(e))}
	if end, ok := l.keys[shown]; !ok || e.Completed < end {
		l.keys[shown] = e.Completed
	}
}

// checkShard checks whether the writer's shard contains the slot of what it wrote: the slot of its owner if it has one,
// otherwise its own slot if it is in the shard's cluster. An At and its Pods must be in that cluster; a copy of a
// Deployment isn't. What the line doesn't show is left to judgeKeyless.
func (l *ledger) checkShard(e *Event, a agent, w write) {
	k, home := keyIn(e), l.cluster(a.Shard.Cluster) == e.Cluster
	made := e.IsDeployment() && e.Verb == "create" && !k.owned // its key may be an owner that we don't know
	if e.IsDeployment() && e.Subresource == "" && k.uid != "" && !made && (k.owned || home) {
		l.copyWrites[k.uid] = append(l.copyWrites[k.uid], w.end)
	}
	switch {
	case (e.IsAt() || e.IsPod()) && !home:
		l.wrongShard(w, "its cluster")
	case made:
	case k.uid == "" && (e.IsAt() || e.IsPod() || e.IsDeployment()):
		l.keyless = append(l.keyless, w)
	case (k.owned || e.IsAt() || e.IsDeployment()) && l.outside(w, k):
		l.wrongShard(w, k.String())
	case k.owned && e.Body.Slot != "" && e.Body.Slot != fmt.Sprintf("%02x", audit.SlotOf(k.uid)):
		l.wrongShard(w, fmt.Sprintf("its label says slot %s, its owner %s has %02x, and the label", e.Body.Slot, k.uid,
			audit.SlotOf(k.uid)))
	}
}

// judgeKeyless checks the writes whose lines don't show a key: deletions, and those of a status, which are logged
// without the object. Other lines show the object's key. One of them must have been answered before: then the log knows
// each later object of that name, too. The writer's shard must have the slot of one of them.
func (l *ledger) judgeKeyless() {
	keys := make(map[int32][]shownKey)
	for k := range l.keys {
		keys[k.object] = append(keys[k.object], k)
	}
	for _, w := range l.keyless {
		known, fits, latest := false, false, shownKey{}
		for _, k := range keys[w.object] {
			known = known || l.keys[k] < w.start
			fits = fits || !l.outside(w, k.key)
			if l.keys[k] > l.keys[latest] {
				latest = k
			}
		}
		if known && !fits && !l.unsure[w.object] {
			l.wrongShard(w, latest.String())
		}
	}
}

// outside reports whether a write is to a key that isn't in the writer's shard. An object without an owner has no key
// in another cluster.
func (l *ledger) outside(w write, k key) bool {
	shard := l.shards.list[w.shard]
	return (k.owned || l.cluster(shard.Cluster) == l.objects.list[w.object].cluster) && !shard.Holds(k.uid)
}

func (k key) String() string {
	if k.owned {
		return "its owner's UID " + k.uid
	}
	return "its UID " + k.uid
}

func (l *ledger) wrongShard(w write, what string) {
	l.found.add(Violation{
		Kind: WrongShard, Object: l.objects.list[w.object].String(), Shard: l.shards.list[w.shard].String(),
		Detail: what + " isn't in the writer's shard", First: l.line(w),
	})
}
