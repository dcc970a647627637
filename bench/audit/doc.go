// Package audit reads the audit logs of API servers: the only reader of them here.
//
//	for e, err := range audit.Events(plane.AuditLog()) {
//		...
//	}
//
// It reads what audit.k8s.io/v1 says and judges nothing; see package witness for that. A log of gigabytes is read line by
// line, in memory that doesn't grow with it. Lines are in the order in which answers were written, which isn't that of
// the commits.
package audit
