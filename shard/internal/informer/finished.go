package informer

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// keepFinished is how long an object stays at least after it is seen to be finished, so that whoever is told of its end
// still finds it. It stays for twice as long at most.
const keepFinished = time.Minute

// leaver is an object that is finished, and since when.
type leaver struct {
	key   types.NamespacedName
	uid   types.UID
	since time.Time
}

// leaves has an object dropped after a while if it is finished. Call it with the lock held.
func (s *Store) leaves(key types.NamespacedName, o client.Object) {
	if s.cfg.Finished == nil || !s.cfg.Finished(o) {
		return
	}
	s.finished = append(s.finished, leaver{key, o.GetUID(), time.Now()})
	if len(s.finished) == 1 {
		s.drops = time.AfterFunc(keepFinished, s.dropFinished)
	}
}

// dropFinished drops what has been finished for long enough.
func (s *Store) dropFinished() {
	s.mu.Lock()
	defer s.mu.Unlock()
	over := 0
	for over < len(s.finished) && time.Since(s.finished[over].since) >= keepFinished {
		last := s.finished[over]
		// Another object may have its name by now, which is dropped at its own time.
		if o := opened(s.find(last.key)); o != nil && o.GetUID() == last.uid && s.cfg.Finished(o) {
			s.remove(last.key)
		}
		over++
	}
	if s.finished = slices.Delete(s.finished, 0, over); len(s.finished) == 0 {
		s.finished = nil
		return
	}
	s.drops.Reset(keepFinished)
}

// keepAll drops nothing any more. A timer would keep the whole Store in memory.
func (s *Store) keepAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.drops != nil {
		s.drops.Stop()
	}
}
