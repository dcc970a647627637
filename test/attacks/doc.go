// Package attacks is a corpus of malicious input (kubeconfigs, Ats, Deployments, records, replies of API servers),
// and the tests that run all of it.
//
// The cases are data: one file in testdata for each family. The tests assert for each case that
//
//   - no file that it names is opened, and no program that it names is run,
//   - no request goes to a server that isn't meant to get one,
//   - nothing is written outside of the allowed namespaces,
//   - nothing crashes or takes long,
//   - no secret in it appears in any output,
//   - the refusal says why.
//
// Each family also has harmless cases, which have to be accepted. So code that refuses everything fails.
//
// Whoever finds a new attack adds it here as a case before mending it. SECURITY.md says who can write what, and what
// stops it.
package attacks
