package jaeger

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tenure-dev/tenure/pkg/text"
)

// shownTags are the tags that the tree shows, in this order, with the name under which each is shown.
var shownTags = []struct{ tag, name string }{
	{"tenure.shard", ""}, {"tenure.epoch", "epoch"}, {"tenure.move", ""}, {"tenure.peer", "with"},
	{"tenure.replica", "at"}, {"tenure.incarnation", "at"},
	{"k8s.namespace.name", "ns"}, {"k8s.object.name", "name"}, {"k8s.request.name", "name"}, {"tenure.trigger", "by"},
	{"tenure.attempt", "attempt"}, {"tenure.result", "result"}, {"tenure.requeue_after", "again-in-s"},
	{"tenure.gap_ms", "gap-ms"},
	{"tenure.objects", "objects"}, {"http.response.status_code", ""}, {"error.type", "error"},
}

// nameWidth is where the times begin at the least, and widestName where at the most.
const nameWidth, widestName = 44, 72

// WriteTree prints a trace: each span below its parent, with when it began after the first one and how long it took.
// With links it also says which traces a span is linked to.
func WriteTree(to io.Writer, t Trace, links bool) error {
	p := printer{trace: t, links: links, children: map[string][]int{}, printed: make([]bool, len(t.Spans))}
	known := map[string]bool{}
	for i := range t.Spans {
		known[t.Spans[i].ID] = true
	}
	var roots []int
	for i, s := range t.Spans {
		if known[s.Parent] {
			p.children[s.Parent] = append(p.children[s.Parent], i)
		} else {
			roots = append(roots, i)
		}
	}
	for _, i := range roots {
		p.span(i, "", "", 0)
	}
	for i := range t.Spans { // spans in a cycle of parents, which has no root
		p.span(i, "", "", 0)
	}
	width := nameWidth
	for i := range p.rows {
		r := &p.rows[i]
		r.name, r.facts = text.Line(r.name, text.Note), text.Line(r.facts, text.Note)
		if r.facts != "" {
			width = min(max(width, utf8.RuneCountInString(r.name)), widestName)
		}
	}
	var out strings.Builder
	fmt.Fprintf(&out, "trace %s, %s, %d spans\n", text.Line(t.ID, text.Cell),
		t.start().UTC().Format("15:04:05.000"), len(t.Spans))
	for _, r := range p.rows {
		if r.facts == "" {
			fmt.Fprintln(&out, r.name)
			continue
		}
		fmt.Fprintf(&out, "%s%s %s\n", r.name, strings.Repeat(" ", max(0, width-utf8.RuneCountInString(r.name))), r.facts)
	}
	_, err := io.WriteString(to, out.String())
	return err
}

type printer struct {
	trace    Trace
	links    bool
	children map[string][]int
	printed  []bool // by span: each is printed once, even in a cycle of parents
	rows     []row
}

// row is one line: of a span, or of a link, which has no facts.
type row struct{ name, facts string }

func (p *printer) span(i int, first, rest string, depth int) {
	if p.printed[i] {
		return
	}
	p.printed[i] = true
	if len(rest) > text.Note/2 { // a name behind more wouldn't be shown, and a long chain would fill the memory
		first, rest = "", ""
	}
	s := &p.trace.Spans[i]
	name := first + s.Name
	if s.Service != "" && depth > 0 && s.Service != p.trace.Spans[0].Service {
		name = first + s.Service + ": " + s.Name
	}
	p.rows = append(p.rows, row{name, fmt.Sprintf("%9s %10s  %s", "+"+length(s.Start.Sub(p.trace.start())),
		length(s.Duration), facts(s))})
	if p.links {
		for _, trace := range s.Links {
			p.rows = append(p.rows, row{name: rest + "→ linked to trace " + trace})
		}
	}
	children := p.children[s.ID]
	for n, child := range children {
		if n == len(children)-1 {
			p.span(child, rest+"└─ ", rest+"   ", depth+1)
		} else {
			p.span(child, rest+"├─ ", rest+"│  ", depth+1)
		}
	}
}

// facts returns the shown tags of a span, in one line.
func facts(s *Span) string {
	var parts []string
	for _, shown := range shownTags {
		value := s.Tags[shown.tag]
		if value == "" {
			continue
		}
		if shown.name != "" {
			value = shown.name + "=" + value
		}
		parts = append(parts, value)
	}
	if s.Failed() {
		parts = append(parts, "FAILED")
	}
	return strings.Join(parts, " ")
}

// length writes a duration so that columns of them can be compared.
func length(d time.Duration) string {
	if d >= 10*time.Second {
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
	return fmt.Sprintf("%.2f ms", float64(d)/float64(time.Millisecond))
}
