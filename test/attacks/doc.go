// Package attacks is a corpus of what somebody could write who means harm, and the tests that run all of it.
//
// The cases are data, in testdata, one file a family. For every one it holds that no file is opened that it names, no
// program run, no server asked that isn't to be asked, nothing written outside of the allowed namespaces, that nothing
// crashes or takes long, that no secret of it shows up in any output, and that the refusal says why. Each family also has
// cases that have to be accepted, so that nothing passes by refusing everything.
//
// A new way in that somebody finds is a new case here first. SECURITY.md says who can write what, and what stops it.
package attacks
