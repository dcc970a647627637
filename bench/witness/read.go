package witness

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/tenure-dev/tenure/bench/audit"
)

// Options says how Read finds and judges logs.
type Options struct {
	// Facts are what the logs needn't show; see Facts.
	Facts Facts
	// Rules are the judgement's tolerances; see Rules.
	Rules Rules
	// Cluster returns the cluster that a namespace of an API server belongs to. It is needed only if some clusters
	// are virtual; nil means the API server's own cluster.
	Cluster func(server, namespace string) string
	// Complete: each cluster whose shards had holders has a log below the folder.
	Complete bool
}

// rotationFelt is how much later than the end of the previous file a file may begin. A file is closed when a line
// doesn't fit any more, and that line is the first of the next. It may be older, where an API server writes in batches.
const rotationFelt = time.Second

// Read judges the audit logs below dir: files named audit*.log, including rotated and compressed ones. Each belongs to
// the cluster that its folder is named after. A line that can't be parsed is an error that names file and line. A
// truncated line at the end of a file is a violation instead.
func Read(dir string, o Options) (*Report, error) {
	if err := o.Rules.Validate(); err != nil {
		return nil, err
	}
	logs, err := audit.Logs(dir)
	if err != nil {
		return nil, err
	}
	l := newLedger(o.Facts, o.Rules)
	l.reads = time.Now().UnixMicro() // API servers may go on writing
	for _, path := range audit.Missing(logs) {
		l.found.add(Violation{Kind: MissingFile, Detail: path +
			" isn't there, and files beside it say that it was: put it back"})
	}
	var in audit.Reader
	for i, log := range logs {
		var before audit.Log
		if i > 0 && filepath.Dir(logs[i-1].Path) == filepath.Dir(log.Path) {
			before = logs[i-1]
		}
		if err := l.read(&in, log, before, o.Cluster); err != nil {
			return nil, err
		}
	}
	l.judgeEmpty(logs)
	if o.Complete {
		l.judgeUnheard()
	}
	report := l.judge()
	report.Dir, report.Input = dir, in.Input
	return report, nil
}

// read reads one file. before is the previous file of the same API server, clusterOf is Options.Cluster.
func (l *ledger) read(in *audit.Reader, log, before audit.Log, clusterOf func(server, namespace string) string) error {
	first := true
	for e, err := range in.Read(log) {
		if errors.Is(err, audit.ErrTruncated) {
			l.found.add(Violation{Kind: TruncatedLine, Detail: err.Error(), First: &Line{File: e.File, Line: e.Line}})
			return nil
		}
		if err != nil {
			return err
		}
		if first && !before.Rotated.IsZero() && e.Answered().Sub(before.Rotated) > rotationFelt {
			l.found.add(Violation{
				Kind: MissingFile, First: l.lineAt(l.place(&e), e.Completed, e.Verb),
				Detail: fmt.Sprintf("%s ends at %s, and the next file begins long after: one in between is missing",
					before.Path, stamp(before.Rotated.UnixMicro())),
			})
		}
		first = false
		if clusterOf != nil {
			e.Cluster = clusterOf(e.Cluster, e.Namespace)
		}
		l.add(&e)
	}
	return nil
}
