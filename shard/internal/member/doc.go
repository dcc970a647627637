// Package member reads and writes the Leases of the home cluster: one per incarnation, and one for the coordinator.
// It decides nothing; see package ownership for what the records mean and when they are written.
package member
