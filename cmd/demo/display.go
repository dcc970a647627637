package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/tenure-dev/tenure/test/lab"
)

const (
	drawEvery  = 250 * time.Millisecond
	printEvery = 2 * time.Second
)

// show shows the board until the context ends: drawn in place on a terminal, line by line elsewhere.
func show(ctx context.Context, b *board, terminal bool) {
	if terminal {
		draw(ctx, b)
		return
	}
	var told string
	for {
		s := b.snapshot()
		if s.headline != told {
			told = s.headline
			fmt.Printf("%s  == %s\n", clock(s.elapsed), told)
		}
		fmt.Println(plainLine(s))
		for end := time.Now().Add(printEvery); time.Now().Before(end); {
			if lab.Sleep(ctx, drawEvery) != nil {
				return
			}
			if b.snapshot().headline != told {
				break // show news at once
			}
		}
	}
}

// drawing is held while the table is drawn, and while a line is written below it.
var drawing sync.Mutex

// draw keeps one table up to date. The last state stays on the screen; after an interrupt, the last one before it.
func draw(ctx context.Context, b *board) {
	fmt.Print("\x1b[?25l")       // the cursor would flicker
	defer fmt.Print("\x1b[?25h") // and is wanted afterwards
	drawn := 0
	for {
		over := ctx.Err() != nil
		columns, rows := lab.TerminalSize(os.Stdout)
		lines := screen(b.snapshot(), columns, rows)
		drawing.Lock()
		if !errors.Is(context.Cause(ctx), errInterrupted) {
			fmt.Print(redraw(lines, min(drawn, rows-1)))
		}
		drawing.Unlock()
		drawn = len(lines)
		if over {
			return
		}
		_ = lab.Sleep(ctx, drawEvery) // the end of the context is drawn once more
	}
}

// redraw replaces the lines that were drawn before. Each line is erased by itself, and what is below the table at the
// end: tmux takes an erasure of the whole screen for a new screen, and moves the old one into the scrollback. A line is
// erased before it is written, since afterwards the cursor may stand on its last character.
func redraw(lines []string, drawn int) string {
	var out strings.Builder
	if drawn > 0 {
		fmt.Fprintf(&out, "\x1b[%dA", drawn)
	}
	out.WriteString("\r")
	for _, line := range lines {
		out.WriteString("\x1b[K" + line + "\n")
	}
	out.WriteString("\x1b[J")
	return out.String()
}
