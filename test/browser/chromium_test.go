package browser

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/tenure-dev/tenure/test/must"
)

// answerWithin bounds every call to the browser.
const answerWithin = time.Minute

// shared is one Chromium, for all tests.
var shared context.Context

func TestMain(m *testing.M) {
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox)
	if path := os.Getenv("CHROMIUM"); path != "" {
		options = append(options, chromedp.ExecPath(path))
	}
	allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
	shared, _ = chromedp.NewContext(allocator)
	code, err := 1, chromedp.Do(shared) // starts it
	if err == nil {
		code = m.Run()
		err = chromedp.Cancel(shared)
	}
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "Chromium: %v (run make browser-test, or name one in $CHROMIUM)\n", err)
		code = 1
	}
	os.Exit(code)
}

// chromium is one tab.
type chromium struct {
	context.Context
	t *testing.T

	mu sync.Mutex // guards what follows
	// complaints are what the page's scripts and its console had to complain about, and requests what it asked for.
	complaints, requests []string
}

// newTab opens a tab of the given size.
func newTab(t *testing.T, width, height int64) *chromium {
	t.Helper()
	tab, done := chromedp.NewContext(shared)
	t.Cleanup(done)
	c := &chromium{Context: tab, t: t}
	must.Succeed(t, chromedp.Listen(tab, func(event any) {
		c.mu.Lock()
		defer c.mu.Unlock()
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			c.complaints = append(c.complaints, (&chromedp.ExceptionError{ExceptionDetails: e.ExceptionDetails}).Error())
		case *log.EventEntryAdded:
			c.complaints = append(c.complaints, e.Entry.Text+" "+e.Entry.URL)
		case *network.EventRequestWillBeSent:
			c.requests = append(c.requests, e.Request.URL)
		}
	}))
	call(c, runtime.Enable, cdp.Empty{})
	call(c, log.Enable, cdp.Empty{})
	call(c, network.Enable, network.EnableParams{})
	call(c, accessibility.Enable, cdp.Empty{})
	run(c, chromedp.EmulateViewport(width, height))
	return c
}

// call sends a command and returns its answer.
func call[P, R any](c *chromium, command cdp.Command[P, R], params P) R {
	c.t.Helper()
	return run(c, func(ctx context.Context, tab *chromedp.Target) (R, error) {
		return cdp.Call(ctx, tab, command, params)
	})
}

func run[R any](c *chromium, action chromedp.Action[R]) R {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c, answerWithin)
	defer cancel()
	answer, err := chromedp.Run(ctx, action)
	must.Succeed(c.t, err)
	return answer
}

// eval returns the value of an expression as a string.
func (c *chromium) eval(expression string) string {
	c.t.Helper()
	return run(c, chromedp.Evaluate[string]("String("+expression+")"))
}

// until waits until an expression is true.
func (c *chromium) until(what, expression string) {
	c.t.Helper()
	for deadline := time.Now().Add(answerWithin); ; time.Sleep(50 * time.Millisecond) {
		if c.eval(expression) == "true" {
			return
		}
		if time.Now().After(deadline) {
			c.t.Fatalf("not within %v: %s; the page says:\n%s", answerWithin, what, c.eval("document.body.innerText"))
		}
	}
}

// key presses a key.
func (c *chromium) key(name string) {
	c.t.Helper()
	run(c, chromedp.KeyEvent(map[string]string{"Tab": kb.Tab, "End": kb.End, "Home": kb.Home,
		"ArrowLeft": kb.ArrowLeft, "ArrowRight": kb.ArrowRight}[name]))
}

// prefer sets what the reader prefers: light or dark.
func (c *chromium) prefer(scheme string) {
	c.t.Helper()
	call(c, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
		{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"},
	}})
}

// screenshot keeps a picture where $SCREENSHOTS says, for people to look at.
func (c *chromium) screenshot(name string) {
	c.t.Helper()
	folder := os.Getenv("SCREENSHOTS")
	if folder == "" {
		return
	}
	must.Succeed(c.t, os.MkdirAll(folder, 0o755))
	must.Succeed(c.t, os.WriteFile(filepath.Join(folder, name+".png"), run(c, chromedp.CaptureScreenshot()), 0o644))
}

// spoken is what a screen reader gets: role and name of each element, in order.
func (c *chromium) spoken() string {
	c.t.Helper()
	said := func(v *accessibility.Value) (text any) {
		if v != nil {
			must.Succeed(c.t, json.Unmarshal(v.Value, &text))
		}
		return text
	}
	var lines []string
	for _, n := range call(c, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{}).Nodes {
		if !n.Ignored {
			lines = append(lines, fmt.Sprintf("%v: %v", said(n.Role), said(n.Name)))
		}
	}
	return strings.Join(lines, "\n")
}
