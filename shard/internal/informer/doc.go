// Package informer keeps the objects of one kind in memory, as client-go's shared informers do, at a small part of
// their cost: a fleet holds two for each of hundreds of clusters in which nothing happens.
//
// A [Store] is filled by one client-go Reflector, which lists, watches, resumes and lists anew. What a Store adds is an
// order: it applies a change and then calls the handlers itself, in the Reflector's goroutine, one after the other. A
// shared informer has a queue, two goroutines and a buffer of 1024 events for each handler instead. So a handler must
// return at once, as one does that only adds a key to a queue. It may read from the Store, but not add handlers to it.
//
// Handlers see what a shared informer would show them, in the same order (the package's tests compare the two), but for
// resyncs: nothing is shown again that hasn't changed, unless the kind is listed anew.
package informer
