// Package report is the result of a run: its shape in JSON, which schema.json states for other programs, and a
// page for a browser that holds everything it shows. The page has no scripts and fetches nothing; all that it plots is
// in the JSON.
package report
