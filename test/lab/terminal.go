package lab

import (
	"os"
	"unicode/utf8"

	"golang.org/x/term"
)

// TerminalSize returns how many columns and rows a terminal has: 80 and 24 if it doesn't say.
func TerminalSize(terminal *os.File) (columns, rows int) {
	columns, rows, err := term.GetSize(int(terminal.Fd()))
	if err != nil || columns == 0 || rows == 0 {
		return 80, 24
	}
	return columns, rows
}

// Clip keeps a line from wrapping, which would break in-place drawing.
func Clip(line string, columns int) string {
	if columns <= 0 || utf8.RuneCountInString(line) <= columns {
		return line
	}
	return string([]rune(line)[:columns])
}
