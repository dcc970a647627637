// Package turnstile lets so many through at a time, and the others in turn.
package turnstile
