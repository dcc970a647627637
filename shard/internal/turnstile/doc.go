// Package turnstile bounds how many callers do something at a time, and lets the others wait in turn.
package turnstile
