// Package text makes texts from elsewhere fit to be shown: an API server's message, a name, an annotation, an error
// that quotes one of these.
//
// A person who can choose such a text must not be able to steer a terminal, to add a line to a log, to change the
// order in which text is read, or to fill a condition or an event. Text goes through [Line] once, where it leaves
// the process: conditions, events, log attributes, screens, spans. A page that sets textContent needs nothing else;
// one that builds HTML has to escape as well.
//
// [Join], [Sorted] and [Few] list names.
package text

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Note is the limit of [Line] for conditions and events, in bytes. The API server refuses an Event with a longer note.
const Note = 1024

// Cell is the limit of [Line] for what should be a name or a single word, in bytes. No name in the API is longer.
const Cell = 253

// mark ends a text that was cut.
const mark = "…"

// Line returns s as one line of printable characters: valid UTF-8, at most limit bytes long, "…" at its end if
// something was left out. The limit must be at least 3.
//
// Line breaks, tabs and other white space become spaces. Every other character that isn't printable becomes U+FFFD, so
// that a reader sees that something was there: control characters, which begin the escape sequences of terminals,
// format characters, which turn the direction of text or have no width, and bytes that are no UTF-8.
//
// Line(Line(s, n), n) is Line(s, n). The time it takes is bounded by the limit, not by the length of s; a text that
// needs no change costs no memory.
func Line(s string, limit int) string {
	if len(s) <= limit && !strings.ContainsFunc(s, unfit) {
		return s
	}
	var out strings.Builder
	room := 0 // the length of out at which the mark still fits
	for _, r := range s {
		switch {
		case unicode.IsSpace(r):
			r = ' '
		case !unicode.IsPrint(r):
			r = utf8.RuneError
		}
		if out.Len()+utf8.RuneLen(r) > limit {
			return out.String()[:room] + mark
		}
		out.WriteRune(r)
		if out.Len()+len(mark) <= limit {
			room = out.Len()
		}
	}
	return out.String()
}

// Cause returns a message without the words that are names or figures, which differ from object to object, and from try
// to try.
func Cause(message string) string {
	return strings.Join(slices.DeleteFunc(strings.Fields(message), func(word string) bool {
		return strings.ContainsAny(word, `"/0123456789`)
	}), " ")
}

// Join is [strings.Join] for all kinds of strings.
func Join[T ~string](all []T, separator string) string {
	words := make([]string, len(all))
	for i, word := range all {
		words[i] = string(word)
	}
	return strings.Join(words, separator)
}

// Sorted returns the words in order, each once, and leaves what it is given as it is.
func Sorted[T ~string](words []T) []T {
	sorted := slices.Clone(words) // slices.Sorted takes twice the memory, and copies name many clusters
	slices.Sort(sorted)
	return slices.Compact(sorted)
}

// Few joins the first names, at most that many, and counts the others.
func Few(names []string, most int) string {
	few := strings.Join(names[:min(len(names), most)], ", ")
	if more := len(names) - most; more > 0 {
		few += fmt.Sprintf(" and %d more", more)
	}
	return few
}

// JSON returns JSON that means the same and that a terminal can show: every character that isn't printable is escaped.
// What encoding/json leaves as it is can still turn the direction of text, or begin an escape sequence (C1).
func JSON(encoded []byte) []byte {
	var out []byte
	for _, r := range string(encoded) {
		if r == '\n' || unicode.IsPrint(r) {
			out = utf8.AppendRune(out, r)
			continue
		}
		for _, unit := range utf16.AppendRune(nil, r) {
			out = fmt.Appendf(out, `\u%04x`, unit)
		}
	}
	return out
}

// unfit reports whether a character can't stay. U+FFFD itself may stand for a byte that is no UTF-8.
func unfit(r rune) bool { return r == utf8.RuneError || !unicode.IsPrint(r) }
