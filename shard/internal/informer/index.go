package informer

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// index knows which objects have a value of a field.
type index struct {
	extract client.IndexerFunc
	keys    map[string]map[types.NamespacedName]struct{}
}

// IndexField makes an index by which objects are found by a field: see client.FieldIndexer. It may be called at any
// time.
func (s *Store) IndexField(field string, extract client.IndexerFunc) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.indexes[field] != nil {
		return fmt.Errorf("%s: there is an index of %s already", s.cfg.Kind.Kind, field)
	}
	i := &index{extract: extract, keys: map[string]map[types.NamespacedName]struct{}{}}
	for _, space := range s.spaces {
		for _, k := range space.objects {
			o := opened(k)
			i.replace(client.ObjectKeyFromObject(o), nil, o)
		}
	}
	if s.indexes == nil {
		s.indexes = map[string]*index{}
	}
	s.indexes[field] = i
	return nil
}

// replace moves an object in the index from one state to another. Either may be nil.
func (i *index) replace(key types.NamespacedName, old, now client.Object) {
	if old != nil {
		for _, value := range i.extract(old) {
			if delete(i.keys[value], key); len(i.keys[value]) == 0 {
				delete(i.keys, value)
			}
		}
	}
	if now != nil {
		for _, value := range i.extract(now) {
			if i.keys[value] == nil {
				i.keys[value] = map[types.NamespacedName]struct{}{}
			}
			i.keys[value][key] = struct{}{}
		}
	}
}

// having returns the objects of a namespace ("" for all) that have all values that the selector names.
func (s *Store) having(selector fields.Selector, namespace string) (found []kept, _ error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	required := selector.Requirements()
	if len(required) == 0 || slices.ContainsFunc(required, func(r fields.Requirement) bool {
		return r.Operator != selection.Equals && r.Operator != selection.DoubleEquals
	}) {
		return nil, fmt.Errorf("%s: caches are searched for exact values of fields only, not by %q",
			s.cfg.Kind.Kind, selector)
	}
	for _, r := range required {
		if s.indexes[r.Field] == nil {
			return nil, fmt.Errorf("%s: there is no index of %s", s.cfg.Kind.Kind, r.Field)
		}
	}
	first, others := required[0], required[1:]
	for key := range s.indexes[first.Field].keys[first.Value] {
		if namespace != "" && key.Namespace != namespace {
			continue
		}
		k := s.find(key)
		o := opened(k)
		if !slices.ContainsFunc(others, func(r fields.Requirement) bool {
			return !slices.Contains(s.indexes[r.Field].extract(o), r.Value)
		}) {
			found = append(found, k)
		}
	}
	return found, nil
}
