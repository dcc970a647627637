// Package cas judges what became of a compare-and-swap from the API server's answer.
package cas
