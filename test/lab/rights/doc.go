// Package rights compares the rights that config/ gives to replicas with those that they use, as API servers' audit
// logs tell: a grant that no suite ever uses is one too many, and a refusal one too few.
//
// Each decision of RBAC is in the log with the role that it rests on. Local control planes leave what their logs show
// in the folder named by the environment variable TENURE_RIGHTS, when they stop; the command in cmd judges all of it at
// the end of the gate.
package rights
