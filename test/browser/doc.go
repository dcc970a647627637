// Package browser tests the status page in a real browser: headless Chromium, driven through a pipe, so that the tests
// open no port but the page's. They need Chromium: `make browser-test` installs it where it is missing.
package browser
