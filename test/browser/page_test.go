package browser

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/page"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	tenurev1alpha1 "github.com/tenure-dev/tenure/pkg/apis/tenure/v1alpha1"
	"github.com/tenure-dev/tenure/pkg/statuspage"
	"github.com/tenure-dev/tenure/shard/inspect"
	"github.com/tenure-dev/tenure/shard/keyspace"
	"github.com/tenure-dev/tenure/shard/protocol"
)

const (
	block   = `[...document.querySelectorAll("button")].find(b => b.dataset.text.startsWith("shard %"))`
	focused = `document.activeElement.dataset.text`
)

func blockOf(shard string) string { return "(" + strings.ReplaceAll(block, "%", shard+",") + ")" }

func TestThePageShowsHandoffsAsTheyHappenAndWhatIsWrong(t *testing.T) {
	f := newFleet(t)
	for range 100 {
		f.wait.Observe(0.004)
	}
	c, _ := open(t, f, 1200, 1000)
	for what, want := range map[string]string{
		`document.getElementById("verdict").textContent`:     "Healthy",
		`document.querySelectorAll(".strip button").length`:  "16",
		`document.querySelectorAll("#replicas tr").length`:   "3",
		blockOf("west/010") + `.textContent`:                 "c",
		`document.getElementById("findings-section").hidden`: "true",
		`document.getElementById("totals").textContent`:      "3 replicas, 16 shards in 2 clusters, 400 objects, all served",
		`document.getElementById("unusable").textContent`:    "None, as this replica sees it.",
	} {
		if got := c.eval(what); got != want {
			t.Errorf("%s is %q, want %q", what, got, want)
		}
	}
	for range 100 {
		f.wait.Observe(0.004)
	}
	c.until("the queue's latency is there",
		`/at.*100.*5\.5 ms.*9\.9 ms/.test(document.getElementById("queues").innerText.replace(/\s+/g, " "))`)
	c.screenshot("light")

	f.change("west.p010", func(s *tenurev1alpha1.Shard) { s.Spec.Assignee = "r0-abc234" })
	c.until("a move is under way",
		`document.getElementById("moves").textContent.includes("west/010: r2-abc234 → r0-abc234, warming")`)
	c.until("its block shows that", blockOf("west/010")+`.classList.contains("moving")`)
	f.change("west.p010", move("r0-abc234", protocol.Planned))
	c.until("the block has a new holder", blockOf("west/010")+`.textContent === "a"`)
	c.until("the handoff is listed",
		`document.getElementById("moves").firstChild.textContent.includes("west/010: r2-abc234 → r0-abc234, Planned, epoch 4")`)
	c.until("it is read out",
		`document.getElementById("said").textContent === "1 shard changed hands; the latest, west/010, went to r0-abc234"`)

	f.change("east.p111", func(s *tenurev1alpha1.Shard) { s.Status.Holder, s.Spec.Assignee = "", "" })
	f.usable.DeleteLabelValues("east", "Usable")
	f.usable.WithLabelValues("east", "Unreachable").Set(0)
	c.until("the verdict changes", `document.getElementById("verdict").textContent === "Something is wrong"`)
	c.until("findings say what",
		`document.getElementById("findings").textContent.includes("nobody holds 1 shard: east/111")`)
	c.until("the cluster is listed", `document.getElementById("unusable").textContent.includes("east: Unreachable")`)
	if got := c.eval(blockOf("east/111") + `.className`); got != "unserved" {
		t.Errorf("the block of a shard without holder is %q", got)
	}
	f.say(0, inspect.ClusterView{Cluster: "west", State: "open", Cause: "throttling", Ready: 9, WaitSeconds: 3,
		Namespaces: []inspect.Waiting{{Namespace: "shop", Keys: 9, WaitSeconds: 3}}})
	c.until("a cluster that refuses is listed",
		`document.getElementById("unusable").textContent.includes("west: open (throttling), 9 keys ready, the oldest for 3 s, shop 3 s")`)
	c.prefer("dark")
	c.screenshot("dark-wrong")
	c.quiet(t)
}

func TestTheMapIsUsedWithTheKeyboardAlone(t *testing.T) {
	t.Run("all", func(t *testing.T) { useKeyboard(t, newFleet(t)) })
	t.Run("of a fleet with too many clusters to show", func(t *testing.T) {
		f := newFleet(t)
		for i := range 250 {
			f.add(fmt.Sprintf("x%03d", i), 0, i)
		}
		useKeyboard(t, f)
	})
}

func useKeyboard(t *testing.T, f *fleet) {
	t.Helper()
	c, _ := open(t, f, 1000, 800)
	for _, want := range []string{"Skip to the fleet", "Skip to the replicas"} {
		c.key("Tab")
		if got := c.eval(`document.activeElement.textContent`); got != want {
			t.Errorf("a first stop is %q, want %q", got, want)
		}
	}
	c.key("Tab")
	for _, step := range []struct{ key, want string }{
		{"", "shard east/000"}, {"ArrowRight", "shard east/001"}, {"End", "shard east/111"}, {"ArrowRight", "shard east/111"},
		{"ArrowLeft", "shard east/110"}, {"Home", "shard east/000"}, {"Tab", "shard west/000"},
		{"ArrowRight", "shard west/001"},
	} {
		if step.key != "" {
			c.key(step.key)
		}
		if got := c.eval(focused); !strings.HasPrefix(got, step.want+",") {
			t.Errorf("after %q the focus is on %q, want %s", step.key, got, step.want)
		}
	}
	f.change("west.p001", move("r0-abc234", protocol.Exit))
	c.until("what has the focus is told anew",
		`document.getElementById("detail").textContent.includes("west/001, held by r0, epoch 4")`)
	if got := c.eval(focused); !strings.HasPrefix(got, "shard west/001, held by r0") {
		t.Errorf("after a new view the focus is on %q", got)
	}
	outline := c.eval(
		`getComputedStyle(document.activeElement).outlineStyle + getComputedStyle(document.activeElement).outlineWidth`)
	if outline != "solid3px" {
		t.Errorf("the focus shows as %q", outline)
	}
	// Where clusters are left out, west comes first now.
	f.change("west.p001", func(s *tenurev1alpha1.Shard) { s.Status.Holder = "" })
	c.until("it still has the focus", `String(`+focused+`).startsWith("shard west/001, nobody holds it")`)
	f.change("west.p111", func(s *tenurev1alpha1.Shard) { s.Spec.Cluster = "west2" }) // west's line gets shorter
	c.until("the block is gone", `!`+blockOf("west/111"))
	if got := c.eval(focused); !strings.HasPrefix(got, "shard west/001") {
		t.Errorf("after a change of the line the focus is on %q", got)
	}
	c.quiet(t)
}

func TestAScreenReaderGetsAllThatIsSeen(t *testing.T) {
	c, _ := open(t, newFleet(t), 1000, 800)
	spoken := c.spoken()
	for _, want := range []string{
		"heading: Tenure", "status: ", "heading: Who serves what", "list: shards of west",
		"button: shard west/010, held by r2, epoch 3, 25 objects, slots 40-5f, since 60 min",
		"heading: Replicas", "columnheader: Lease renewed", "rowheader: r0-abc234 (coordinates)",
		"heading: Handoffs", "heading: Queues of r1", "heading: Clusters that can't be used", "link: Skip to the fleet",
	} {
		if !strings.Contains(spoken, want) {
			t.Errorf("not said: %q\n%s", want, spoken)
		}
	}
}

// contrast is the lowest ratio of the luminances of text and what is behind it, of all elements with a text of their
// own.
const contrast = `(() => {
	const parse = (c) => c.match(/[\d.]+/g).map(Number);
	const light = ([r, g, b]) => [r, g, b].map((v) => v / 255).map((v) => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
		.reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
	const behind = (e) => { for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor); if (c.length < 4 || c[3] > 0) return c; } return [255, 255, 255]; };
	let worst = [99, ""];
	for (const e of document.querySelectorAll("body *")) {
		if (![...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim()) || e.offsetParent === null) continue;
		const [a, b] = [light(parse(getComputedStyle(e).color)), light(behind(e))].sort((x, y) => y - x);
		const ratio = (a + .05) / (b + .05);
		if (ratio < worst[0]) worst = [ratio, e.outerHTML.slice(0, 150)];
	}
	return worst.join(" ");
})()`

func TestEveryTextIsReadableInLightAndDark(t *testing.T) {
	f := newFleet(t)
	f.change("east.p111", func(s *tenurev1alpha1.Shard) { s.Status.Holder = "" })
	c, _ := open(t, f, 1000, 800)
	papers := map[string]bool{}
	for _, scheme := range []string{"light", "dark"} {
		c.prefer(scheme)
		papers[c.eval(`getComputedStyle(document.body).backgroundColor`)] = true
		worst := c.eval(contrast)
		ratio, err := strconv.ParseFloat(strings.Fields(worst)[0], 64)
		if err != nil || ratio < 4.5 {
			t.Errorf("%s: contrast below 4.5: %s (%v)", scheme, worst, err)
		}
	}
	if len(papers) != 2 {
		t.Errorf("light and dark look the same: %v", papers)
	}
}

func TestANarrowScreenNeedsNoScrollingSideways(t *testing.T) {
	c, _ := open(t, newFleet(t), 360, 800)
	if got := c.eval(`document.documentElement.scrollWidth <= 360`); got != "true" {
		t.Errorf("the page is %s px wide", c.eval(`document.documentElement.scrollWidth`))
	}
	c.screenshot("narrow")
}

func TestAClusterThatWasMadeAnewIsDrawnAsAnyOther(t *testing.T) {
	f := newFleet(t)
	f.usable.WithLabelValues("north", "Usable").Set(1)
	for _, prefix := range keyspace.Partition(keyspace.MaxBits) {
		id := keyspace.ShardID{Cluster: "north", Prefix: prefix, Generation: 2}
		f.records.Shards = append(f.records.Shards, tenurev1alpha1.Shard{
			ObjectMeta: metav1.ObjectMeta{Name: id.RecordName("")},
			Spec: tenurev1alpha1.ShardSpec{Cluster: "north", Prefix: prefix.String(), Generation: 2,
				Assignee: "r0-abc234"},
			Status: tenurev1alpha1.ShardStatus{Holder: "r0-abc234", Epoch: 1, Phase: tenurev1alpha1.ShardHeld},
		})
	}
	c, _ := open(t, f, 1200, 1000)
	const widths = `[...document.querySelectorAll('[data-cluster="north"] .strip li')].map((e) => e.getBoundingClientRect().width)`
	if got := c.eval(widths + `.filter((w) => w > 1).length`); got != "256" {
		t.Errorf("%s of 256 blocks can be seen: %s", got, c.eval(widths))
	}
	c.quiet(t)
}

func TestNamesAreTextAndNeverMarkup(t *testing.T) {
	f := newFleet(t)
	evil := `<img src=x onerror="document.title='owned'">` + "\u202egnp\u200b.exe\u2028" + strings.Repeat("long", 1000)
	f.usable.WithLabelValues(evil, evil).Set(0)
	f.change("west.p010", func(s *tenurev1alpha1.Shard) { s.Status.Holder, s.Spec.Assignee = evil, evil })
	c, _ := open(t, f, 1000, 800)
	c.until("the name is shown", `document.body.innerText.includes("<img src=x")`)
	if got := c.eval(`document.querySelectorAll("img").length + document.title`); got != "0! Tenure" {
		t.Errorf("markup from a name came alive: %s", got)
	}
	const whole = `(document.body.textContent + [...document.querySelectorAll("[aria-label]")].map((e) => e.ariaLabel))`
	if got := c.eval(`/[\u202e\u200b\u2028]/.test(` + whole + `) + " " + ` + whole +
		`.includes("long".repeat(300))`); got != "false false" {
		t.Errorf("a name turns the direction of text or hides, or is too long: %s", got)
	}
	c.quiet(t)
}

func TestAPageThatLostItsReplicaSaysSo(t *testing.T) {
	c, stop := open(t, newFleet(t), 1000, 800)
	stop()
	c.until("the page says that it is old", isOld)
}

// isOld is how a page shows that it isn't up to date.
const isOld = `document.getElementById("link").textContent.includes("what you see is old") &&
	document.getElementById("verdict").textContent === "Unknown" &&
	getComputedStyle(document.getElementById("verdict")).color === getComputedStyle(document.getElementById("totals")).color &&
	document.title === "? Tenure"`

// A network that drops what is sent closes no connection: that of a laptop that went elsewhere, of a node that died.
func TestAPageOfAReplicaThatFellSilentSaysSoAndFollowsAgain(t *testing.T) {
	f := newFleet(t)
	address, _ := f.serve(t)
	c := newTab(t, 1000, 800)
	call(c, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{
		// So that the test needn't wait for half a minute.
		Source: `{ const wait = setTimeout; window.setTimeout = (then, ms) => wait(then, ms / 15); }`})
	call(c, page.Navigate, page.NavigateParams{URL: address + statuspage.Path})
	const live = `document.getElementById("link")?.textContent.startsWith("Live") && document.title === "Tenure"`
	c.until("the page is live", live)
	f.silent.Store(true)
	c.until("the page says that it is old", `document.getElementById("link").textContent.startsWith("Nothing came for 30 s") && `+
		isOld)
	f.silent.Store(false)
	c.until("the page is live again", live)
	c.quiet(t)
}

func TestReplicasThatAreGoneLeaveTheirLetters(t *testing.T) {
	f := newFleet(t)
	c, _ := open(t, f, 1000, 800)
	const letters = `[...document.querySelectorAll("#replicas tr")].map((r) => r.querySelector("th").innerText).join(" ")`
	for i, want := range []string{
		"br1-abc234 cr2-abc234 ax0-abc234 (coordinates)", "cr2-abc234 ax0-abc234 (coordinates) bx1-abc234",
	} {
		f.replace(i, fmt.Sprintf("x%d", i))
		c.until("the letters are "+want, letters+` === `+strconv.Quote(want))
	}
}

// quiet checks that the page sent requests to its own server only, and that the browser complained about nothing.
func (c *chromium) quiet(t *testing.T) {
	t.Helper()
	host := c.eval(`location.origin`)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, url := range c.requests {
		if !strings.HasPrefix(url, host+"/status") {
			t.Errorf("the page asked for %s", url)
		}
	}
	if len(c.requests) < 3 {
		t.Errorf("only %d requests were seen: this check sees nothing", len(c.requests))
	}
	for _, text := range c.complaints {
		t.Errorf("the browser complains: %s", text)
	}
}

// A browser doesn't try again by itself after an answer that is an error.
func TestAPageThatWasRefusedOnceTriesAgain(t *testing.T) {
	f := newFleet(t)
	f.refuses.Store(1)
	open(t, f, 1000, 800) // waits until the page is live
	if f.refuses.Load() > -1 {
		t.Error("it wasn't refused")
	}
}
