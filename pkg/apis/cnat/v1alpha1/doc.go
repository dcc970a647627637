// Package v1alpha1 holds the At API: a command that runs once, at a given time.
//
// The group and the two required fields are those of the book Programming
// Kubernetes, so its example applies unchanged. Everything else is optional.
//
// # What the API server enforces
//
// The rules below are part of the CRD, so they hold for every writer, also for
// one that is outdated or broken:
//
//   - spec.schedule is an RFC 3339 time; anything else is refused with the field named.
//   - status.phase is PENDING from creation on, with no write, and only goes
//     forward: PENDING, RUNNING, DONE.
//   - What will run, and when, is frozen once the At is no longer PENDING.
//   - status.epoch never falls: a writer of an earlier tenure is refused.
//
// +kubebuilder:object:generate=true
// +groupName=cnat.programming-kubernetes.info
package v1alpha1
