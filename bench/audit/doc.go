// Package audit reads the audit logs of API servers.
//
//	for e, err := range audit.Events(plane.AuditLog()) {
//		...
//	}
//
// It parses audit.k8s.io/v1 and judges nothing; package witness does that. A log of gigabytes is read line by line, in
// memory that doesn't grow with it. Lines are in the order in which answers were written, not in that of the commits.
package audit
