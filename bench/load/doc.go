// Package load asks things of a fleet: it creates Ats on a schedule, plays the kubelets, and is the bare client that
// the fleet is compared with.
//
// # Open loop
//
// Arrivals are scheduled beforehand, and an At counts from the time at which it should have been sent, however late the
// generator was. So a fleet that stalls can't slow its own load down, and the stall is seen by all Ats that came
// meanwhile. The generator's own lateness is measured: where it is large, the run says nothing.
//
// # Kubelets
//
// Scheduler, controller manager and KWOK would take most of two cores. For measurements Pods are ended by [Kubelets]
// instead, as soon as they appear: one write per Pod, the same for everything that is compared.
package load
