//go:build browser

package browser

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/test/must"
)

// answerWithin bounds every call to the browser.
const answerWithin = time.Minute

// browser is one Chromium, for all tests.
type browser struct {
	command *exec.Cmd
	to      io.WriteCloser
	from    io.Closer
	done    chan struct{} // closed when nothing more comes from it

	mu      sync.Mutex // guards all below, and writing
	next    int
	waiting map[int]chan reply
	broken  error
	tabs    map[string]*chromium // by session
}

// chromium is one tab.
type chromium struct {
	*browser
	t       *testing.T
	session string
	// complaints are what the page's scripts and its console had to complain about, and requests what it asked for.
	// The browser's mu guards them.
	complaints, requests []string
}

// reply is a message of the browser: an answer to a call, or an event.
type reply struct {
	ID        int             `json:"id"`
	SessionID string          `json:"sessionId"`
	Method    string          `json:"method"`
	Params    json.RawMessage `json:"params"`
	Result    json.RawMessage `json:"result"`
	Error     *struct {
		Message string `json:"message"`
	} `json:"error"`
}

func findChromium() (string, error) {
	for _, name := range []string{os.Getenv("CHROMIUM"), "chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); name != "" && err == nil {
			return path, nil
		}
	}
	return "", errors.New("there is no Chromium: run make browser-test, which installs it, or name one in $CHROMIUM")
}

var shared *browser

func TestMain(m *testing.M) {
	profile, err := os.MkdirTemp("", "tenure-browser-")
	if err == nil {
		shared, err = startBrowser(profile)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	shared.stop()
	if err := os.RemoveAll(profile); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// startBrowser starts Chromium with a pipe for commands and one for answers.
func startBrowser(profile string) (*browser, error) {
	path, err := findChromium()
	if err != nil {
		return nil, err
	}
	toBrowser, commands, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	answers, fromBrowser, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	command := exec.Command(path, "--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu",
		"--hide-scrollbars",
		"--no-first-run", "--disable-dev-shm-usage", "--disable-background-networking",
		"--disable-component-update", "--disable-sync",
		"--force-device-scale-factor=1", "--user-data-dir="+profile, "about:blank")
	command.ExtraFiles = []*os.File{toBrowser, fromBrowser} // 3 and 4, by the protocol
	if err := command.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", path, err)
	}
	toBrowser.Close()
	fromBrowser.Close()
	b := &browser{
		command: command, to: commands, from: answers, done: make(chan struct{}), waiting: map[int]chan reply{},
		tabs: map[string]*chromium{},
	}
	go func() {
		defer close(b.done)
		b.listen(answers)
	}()
	return b, nil
}

func (b *browser) stop() {
	_, _ = b.send("", "Browser.close", nil)
	timer := time.AfterFunc(5*time.Second, func() { _ = b.command.Process.Kill() })
	defer timer.Stop()
	_ = b.command.Wait() // its exit code says nothing
	b.to.Close()
	b.from.Close()
	<-b.done
}

// newTab opens a tab of the given size.
func newTab(t *testing.T, width, height int) *chromium {
	t.Helper()
	c := &chromium{browser: shared, t: t}
	var target struct{ TargetID, SessionID string }
	c.call("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	c.call("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &target)
	c.mu.Lock()
	c.session = target.SessionID
	c.tabs[c.session] = c
	c.mu.Unlock()
	for _, domain := range []string{"Page", "Runtime", "Log", "Network", "Accessibility"} {
		c.call(domain+".enable", nil, nil)
	}
	c.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 1,
		"mobile": false}, nil)
	t.Cleanup(func() { c.call("Page.close", nil, nil) })
	return c
}

// listen takes messages, which end with a zero byte, until the browser is gone.
func (b *browser) listen(from io.Reader) {
	in := bufio.NewReader(from)
	for {
		text, err := in.ReadBytes(0)
		if err != nil {
			b.mu.Lock()
			b.broken = fmt.Errorf("the browser is gone: %w", err)
			for _, answer := range b.waiting {
				close(answer)
			}
			b.waiting = nil
			b.mu.Unlock()
			return
		}
		var r reply
		if err := json.Unmarshal(text[:len(text)-1], &r); err != nil {
			continue // not for us
		}
		b.take(r)
	}
}

func (b *browser) take(r reply) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch r.Method {
	case "":
		if answer := b.waiting[r.ID]; answer != nil {
			delete(b.waiting, r.ID)
			answer <- r
		}
	case "Runtime.exceptionThrown", "Log.entryAdded":
		if tab := b.tabs[r.SessionID]; tab != nil {
			tab.complaints = append(tab.complaints, string(r.Params))
		}
	case "Network.requestWillBeSent":
		var p struct{ Request struct{ URL string } }
		_ = json.Unmarshal(r.Params, &p)
		if tab := b.tabs[r.SessionID]; tab != nil {
			tab.requests = append(tab.requests, p.Request.URL)
		}
	}
}

// send sends a command without waiting for its answer.
func (b *browser) send(session, method string, params any) (chan reply, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.broken != nil {
		return nil, b.broken
	}
	b.next++
	text, err := json.Marshal(map[string]any{"id": b.next, "method": method, "params": orEmpty(params),
		"sessionId": session})
	if session == "" {
		text, err = json.Marshal(map[string]any{"id": b.next, "method": method, "params": orEmpty(params)})
	}
	if err != nil {
		return nil, err
	}
	answer := make(chan reply, 1)
	b.waiting[b.next] = answer
	_, err = b.to.Write(append(text, 0))
	return answer, err
}

func orEmpty(params any) any {
	if params == nil {
		return struct{}{}
	}
	return params
}

// call sends a command and takes its answer.
func (c *chromium) call(method string, params, result any) {
	c.t.Helper()
	answer, err := c.send(c.session, method, params)
	if err != nil {
		c.t.Fatalf("%s: %v", method, err)
	}
	select {
	case r, ok := <-answer:
		switch {
		case !ok:
			c.t.Fatalf("%s: the browser is gone", method)
		case r.Error != nil:
			c.t.Fatalf("%s: %s", method, r.Error.Message)
		case result != nil:
			if err := json.Unmarshal(r.Result, result); err != nil {
				c.t.Fatalf("%s: %v", method, err)
			}
		}
	case <-time.After(answerWithin):
		c.t.Fatalf("%s: no answer within %v", method, answerWithin)
	}
}

// eval returns the value of an expression, which must be a string.
func (c *chromium) eval(expression string) string {
	c.t.Helper()
	var out struct {
		Result           struct{ Value any }
		ExceptionDetails *struct{ Exception struct{ Description string } }
	}
	c.call("Runtime.evaluate", map[string]any{"expression": "String(" + expression + ")", "returnByValue": true}, &out)
	if out.ExceptionDetails != nil {
		c.t.Fatalf("%s: %s", expression, out.ExceptionDetails.Exception.Description)
	}
	return fmt.Sprint(out.Result.Value)
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
	code := map[string]int{"Tab": 9, "End": 35, "Home": 36, "ArrowLeft": 37, "ArrowRight": 39}[name]
	for _, kind := range []string{"rawKeyDown", "keyUp"} {
		c.call("Input.dispatchKeyEvent", map[string]any{"type": kind, "key": name, "code": name,
			"windowsVirtualKeyCode": code}, nil)
	}
}

// prefer sets what the reader prefers: light or dark.
func (c *chromium) prefer(scheme string) {
	c.t.Helper()
	c.call("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{
		{"name": "prefers-color-scheme", "value": scheme}, {"name": "prefers-reduced-motion", "value": "reduce"},
	}}, nil)
}

// screenshot keeps a picture where $SCREENSHOTS says, for people to look at.
func (c *chromium) screenshot(name string) {
	c.t.Helper()
	folder := os.Getenv("SCREENSHOTS")
	if folder == "" {
		return
	}
	var picture struct{ Data string }
	c.call("Page.captureScreenshot", map[string]any{"format": "png"}, &picture)
	data, err := base64.StdEncoding.DecodeString(picture.Data)
	if err == nil {
		err = os.MkdirAll(folder, 0o755)
	}
	if err == nil {
		err = os.WriteFile(folder+"/"+name+".png", data, 0o644)
	}
	must.Succeed(c.t, err)
}

// spoken is what a screen reader gets: role and name of each element, in order.
func (c *chromium) spoken() string {
	c.t.Helper()
	var tree struct {
		Nodes []struct {
			Ignored    bool
			Role, Name struct{ Value any }
		}
	}
	c.call("Accessibility.getFullAXTree", nil, &tree)
	var lines []string
	for _, n := range tree.Nodes {
		if !n.Ignored {
			lines = append(lines, fmt.Sprintf("%v: %v", n.Role.Value, n.Name.Value))
		}
	}
	return strings.Join(lines, "\n")
}
