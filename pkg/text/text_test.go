package text

import (
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/tenure-dev/tenure/test/must"
)

func TestATextFromElsewhereBecomesOnePrintableLine(t *testing.T) {
	for name, c := range map[string]struct {
		text  string
		limit int
		want  string
	}{
		"what is harmless stays": {"pods \"a\" is forbidden: <b>quota</b> & ünïcode 名前 🙂", Note,
			"pods \"a\" is forbidden: <b>quota</b> & ünïcode 名前 🙂"},
		"lines and tabs become spaces": {"one\ntwo\r\n\tthree\u2028four\u00a0five\v\f", Note,
			"one two   three four five  "},
		"a colour is no colour":   {"\x1b[31mred\x1b[0m", Note, "\ufffd[31mred\ufffd[0m"},
		"a title isn't set (OSC)": {"\x1b]0;owned\x07", Note, "\ufffd]0;owned\ufffd"},
		"a link isn't made (OSC 8)": {"\x1b]8;;https://evil\x1b\\ok\x1b]8;;\x1b\\", Note,
			"\ufffd]8;;https://evil\ufffd\\ok\ufffd]8;;\ufffd\\"},
		"C1 controls begin sequences, too": {"\u009b2J\u009d0;x\u009c", Note, "\ufffd2J\ufffd0;x\ufffd"},
		"C1 controls as single bytes":      {"\x9b2J", Note, "\ufffd2J"},
		"nothing is rubbed out": {"refused\b\b\b\b\b\b\bgranted\x7f\x00", Note,
			"refused" + strings.Repeat("\ufffd", 7) + "granted\ufffd\ufffd"},
		"the direction isn't turned": {"user\u202eresu\u202c \u2066a\u2069 \u200fb", Note,
			"user\ufffdresu\ufffd \ufffda\ufffd \ufffdb"},
		"nothing is invisible":              {"ad\u200bmin\u2060\ufeff\U000e0041", Note, "ad\ufffdmin\ufffd\ufffd\ufffd"},
		"what is no UTF-8 is shown as such": {"a\xff\xc3(\xed\xa0\x80", Note, "a\ufffd\ufffd(\ufffd\ufffd\ufffd"},
		"private and unassigned characters": {"\ue000\U0010ffff\u0378", Note, "\ufffd\ufffd\ufffd"},
		"as long as may be":                 {"12345678", 8, "12345678"},
		"one too long":                      {"123456789", 8, "12345…"},
		"cut before a character":            {"名前名前", 8, "名…"},
		"what grows is cut, too":            {strings.Repeat("\x00", 8), 8, "\ufffd…"},
		"the shortest limit":                {"ünï", 3, "…"},
		"nothing":                           {"", Note, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Line(c.text, c.limit); got != c.want {
				t.Errorf("%q within %d bytes: %q, want %q", c.text, c.limit, got, c.want)
			}
		})
	}
}

func TestALongTextIsNotWalkedToItsEnd(t *testing.T) {
	long := strings.Repeat("\x1b[2J", 64<<20/4)
	fastest := time.Hour
	for range 5 { // this process may have to wait for others
		start := time.Now()
		Line(long, Note)
		fastest = min(fastest, time.Since(start))
	}
	if fastest > 10*time.Millisecond { // it takes a few µs; all of it would take 100 ms and more
		t.Errorf("cutting 64 MiB down to %d bytes took %v", Note, fastest)
	}
}

func TestATextThatNeedsNoChangeCostsNoMemory(t *testing.T) {
	s := "pods \"job-1\" is forbidden: exceeded quota: pods, requested: 1, used: 10, limited: 10"
	if n := testing.AllocsPerRun(100, func() { Line(s, Note) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func FuzzJSON(f *testing.F) {
	f.Add("a\u202e\u009b[2J\U000e0041\x1b\n\"\\<名🙂\xff")
	f.Fuzz(func(t *testing.T, s string) {
		var want, got any
		plain, err := json.MarshalIndent(map[string]string{"s": s}, "", "  ")
		must.Succeed(t, err)
		shown := JSON(plain)
		if err := errors.Join(json.Unmarshal(plain, &want), json.Unmarshal(shown, &got)); err != nil ||
			!reflect.DeepEqual(want, got) {
			t.Errorf("%q means something else than %q (%v)", shown, plain, err)
		}
		if strings.ContainsFunc(string(shown), func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }) {
			t.Errorf("%q isn't printable", shown)
		}
	})
}

func FuzzLine(f *testing.F) {
	f.Add("pods \"x\" is forbidden\n", 12)
	f.Add("\x1b]0;\xff\u202e", 5)
	f.Fuzz(func(t *testing.T, s string, limit int) {
		limit = max(limit, len(mark))
		got := Line(s, limit)
		switch {
		case !utf8.ValidString(got):
			t.Errorf("%q isn't UTF-8", got)
		case len(got) > limit:
			t.Errorf("%q has %d bytes, want at most %d", got, len(got), limit)
		case Line(got, limit) != got:
			t.Errorf("%q becomes %q when it is cleaned again", got, Line(got, limit))
		case strings.ContainsFunc(got, func(r rune) bool { return !unicode.IsPrint(r) }):
			t.Errorf("%q has a character that isn't printable", got)
		case !strings.HasSuffix(got, mark) && utf8.RuneCountInString(got) != utf8.RuneCountInString(s):
			t.Errorf("%q lacks something of %q and doesn't say so", got, s)
		}
	})
}

func TestMessagesOfOneCauseDifferInNamesAndFiguresAlone(t *testing.T) {
	for _, message := range []string{
		`pods "hello-1" is forbidden: exceeded quota, used: pods=3`,
		"pods \"hello-27\" is  forbidden:\nexceeded quota, used: pods=30",
	} {
		if got, want := Cause(message), "pods is forbidden: exceeded quota, used:"; got != want {
			t.Errorf("%q: %q, want %q", message, got, want)
		}
	}
}

func TestWordsAreSortedAndNamedOnce(t *testing.T) {
	words := []string{"west", "east", "west"}
	if got := Sorted(words); !slices.Equal(got, []string{"east", "west"}) || words[0] != "west" {
		t.Errorf("%q of %q", got, words)
	}
}
