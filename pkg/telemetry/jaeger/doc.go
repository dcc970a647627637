// Package jaeger reads traces from Jaeger's HTTP API and prints them as trees.
package jaeger
