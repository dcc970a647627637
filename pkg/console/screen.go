package console

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/tenure-dev/tenure/pkg/text"
)

// width is how many columns any terminal has. Texts are wrapped at it.
const width = 80

// Screen writes answers for a person.
type Screen struct {
	To io.Writer
	// Columns is how wide the terminal is; less than 80 counts as 80. In tables that are wider, names are cut. 0 means
	// that it isn't a terminal: nothing is cut in tables then.
	Columns int
	// Colour turns escape sequences on.
	Colour bool
	err    error
}

// Styles, as parameters of the terminal's escape sequence. None is needed to understand a screen.
const (
	plain  = ""
	bold   = "1"
	dim    = "2"
	red    = "31"
	green  = "32"
	yellow = "33"
)

// paint gives a text a style.
func (s *Screen) paint(style, text string) string {
	if !s.Colour || style == plain || text == "" {
		return text
	}
	return "\x1b[" + style + "m" + text + "\x1b[0m"
}

// line writes one line; after an error it does nothing.
func (s *Screen) line(parts ...string) {
	if s.err == nil {
		_, s.err = fmt.Fprintln(s.To, strings.TrimRight(strings.Join(parts, ""), " "))
	}
}

// longest is how much of one text is shown, in bytes.
const longest = 2 * text.Note

// wrap writes a text in lines that fit. The mark begins the first line, and its width indents the others.
func (s *Screen) wrap(mark, style, what string) {
	indent := strings.Repeat(" ", utf8.RuneCountInString(mark))
	line := ""
	flush := func() {
		s.line(s.paint(style, mark+line))
		mark, line = indent, ""
	}
	for _, word := range strings.Fields(text.Line(what, longest)) {
		word = fit(word, width-utf8.RuneCountInString(mark))
		if line != "" && utf8.RuneCountInString(mark)+utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width {
			flush()
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	flush()
}

// cell is a piece of a table.
type cell struct {
	text  string
	style string
	right bool // align to the right
	whole bool // never cut
}

func left(text string) cell                 { return cell{text: text} }
func num[N int | int64](n N) cell           { return cell{text: fmt.Sprint(n), right: true} }
func right(text string) cell                { return cell{text: text, right: true} }
func styled(style string, text string) cell { return cell{text: text, style: style} }

// narrowest is the width at which a column of names isn't cut any further.
const narrowest = 8

// table writes rows in aligned columns. Where a terminal has no room for them, the widest columns of names are cut. The
// first row's cells say how each column is aligned and whether it may be cut.
func (s *Screen) table(titles []string, rows [][]cell) {
	widths := make([]int, len(titles))
	total := 2 * (len(widths) - 1)
	for i, title := range titles {
		widths[i] = utf8.RuneCountInString(title)
		for _, row := range rows {
			row[i].text = text.Line(row[i].text, text.Cell)
			widths[i] = max(widths[i], utf8.RuneCountInString(row[i].text))
		}
		total += widths[i]
	}
	for room := max(s.Columns, width); s.Columns > 0 && total > room && len(rows) > 0; total-- {
		widest := -1
		for i, w := range widths {
			if c := rows[0][i]; !c.right && !c.whole && w > narrowest && (widest < 0 || w > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			break
		}
		widths[widest]--
	}
	header := make([]cell, len(titles))
	for i, title := range titles {
		header[i] = cell{text: title, style: dim, right: len(rows) > 0 && rows[0][i].right}
	}
	for _, row := range append([][]cell{header}, rows...) {
		var line strings.Builder
		for i, c := range row {
			shown := fit(c.text, widths[i])
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(shown))
			if c.right {
				line.WriteString(pad)
			}
			line.WriteString(s.paint(c.style, shown))
			if !c.right && i < len(row)-1 {
				line.WriteString(pad)
			}
			if i < len(row)-1 {
				line.WriteString("  ")
			}
		}
		s.line(line.String())
	}
}

// Table writes texts in aligned columns under titles. A row must have a text for each title.
func (s *Screen) Table(titles []string, rows [][]string) {
	var all [][]cell
	for _, row := range rows {
		var cells []cell
		for _, text := range row {
			cells = append(cells, left(text))
		}
		all = append(all, cells)
	}
	s.table(titles, all)
}

// Note writes a text in lines that fit, under a mark.
func (s *Screen) Note(mark, text string) { s.wrap(mark, plain, text) }

// Err returns the first error of writing. Nothing was written after it.
func (s *Screen) Err() error { return s.err }

// fit cuts a text in its middle, since names differ at their ends.
func fit(name string, room int) string {
	runes := []rune(name)
	if len(runes) <= room {
		return name
	}
	if room < 3 {
		return string(runes[:room])
	}
	end := (room - 1) * 2 / 3
	return string(runes[:room-1-end]) + "…" + string(runes[len(runes)-end:])
}
