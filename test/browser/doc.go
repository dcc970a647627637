// Package browser tests the status page in a real browser: headless Chromium, driven over its own debugging protocol
// through a pipe, so that the tests need no library and open no port but the page's.
//
// The tests have the build tag "browser" and need Chromium: `make browser-test` installs it where it is missing.
package browser
