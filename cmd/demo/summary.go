package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode"

	"github.com/tenure-dev/tenure/pkg/statuspage"
	"github.com/tenure-dev/tenure/test/lab"
)

// report prints the summary, and how to look further.
func report(w io.Writer, s *settings, f *lab.Fleet, b *board, o *observation, checks []check) {
	fmt.Fprint(w, "\n"+summary(o, checks))
	fmt.Fprint(w, "\n"+sights(s, f.Jaeger.QueryURL(), o.traces))
	fmt.Fprint(w, "\n"+look(s, f, b))
}

// outcome is the verdict in three or four words.
func outcome(checks []check) string {
	if verdict(checks) != nil {
		return "Something does NOT hold."
	}
	return "Everything holds."
}

// summary is the result for a reader.
func summary(o *observation, checks []check) string {
	text := fmt.Sprintf("%s %d Ats in %s, the latest %s after its time.\n",
		outcome(checks), o.expected, o.took.Round(time.Second), length(lateness(o)))
	for _, c := range checks {
		mark := "ok  "
		if !c.ok {
			mark = "FAIL"
		}
		text += fmt.Sprintf("  %s  %-32s %s\n", mark, c.what, c.found)
	}
	return text
}

// look returns how to go on from here.
func look(s *settings, f *lab.Fleet, b *board) string {
	dir := f.Planes.Dir()
	logs := `  ls "$D"/replicas/*.log "$D"/*/logs/*.log "$D"/*/audit.log` + "\n"
	switch {
	case !s.stay && s.dir == "":
		return "With a terminal the demo stays up for a look around; DEMO_DIR=folder keeps logs and data.\n"
	case !s.stay:
		return fmt.Sprintf("Look further:\n  D=%s\n%s", quote(dir), logs)
	}
	kubeconfig := func(cluster string) string {
		return `"$D/` + strings.TrimPrefix(f.Planes.Cluster(cluster).Kubeconfig(), dir+"/") + `"`
	}
	kubectl := func(cluster, rest string) string {
		return fmt.Sprintf("  %s kubectl --kubeconfig %s %s\n", program(s.controlplane), kubeconfig(cluster), rest)
	}
	var ports, names []string
	for _, r := range b.allReplicas() {
		if _, port, err := net.SplitHostPort(r.Address(0)); err == nil && !r.Ended() {
			ports, names = append(ports, port), append(names, fmt.Sprintf("%s (process %d)", r.Name, r.PID()))
		}
	}
	text := fmt.Sprintf("  D=%s    # look further, in another terminal:\n", quote(dir))
	if len(ports) > 0 {
		text += fmt.Sprintf("  http://127.0.0.1:%s%s    # the fleet, live, in a browser\n", ports[0], statuspage.Path)
	}
	text += fmt.Sprintf("  %s status --home-kubeconfig %s\n", program(s.tenure), kubeconfig(homeCluster)) +
		kubectl(homeCluster, "get shards -n "+namespace+" -o wide") +
		kubectl(workloadClusters[0], "get ats -A") +
		kubectl(workloadClusters[1], "get pods -A") +
		kubectl(workloadClusters[0], "get deployments -n "+sourceNamespace) + logs
	text += fmt.Sprintf("  curl http://127.0.0.1:{%s}/metrics\n", strings.Join(ports, ","))
	text += fmt.Sprintf("  kill -9 PID, of %s\n", strings.Join(names, ", "))
	return text
}

// sights are the commands that show the traces worth seeing. jaeger is where Jaeger answers.
func sights(s *settings, jaeger string, traces []traceFacts) string {
	text := "Worth seeing in Jaeger (built without its web pages, so by these commands):\n"
	if !s.stay {
		text = "Worth seeing in Jaeger (gone now; with a terminal the demo stays up):\n"
	}
	command := program(s.tenure) + " trace "
	if jaeger != fmt.Sprintf("http://127.0.0.1:%d", usualPort) {
		command += "--jaeger " + jaeger + " "
	}
	for _, t := range traces {
		if t.path == "" {
			continue
		}
		text += fmt.Sprintf("  %s (%s)\n    %s\n    curl %s\n", t.what, t.about, command+strings.Join(t.arguments, " "),
			quote(jaeger+t.path))
	}
	return text
}

// program is how to call a program in a shell.
func program(path string) string { return quote(relative(path)) }

// quote returns a word as a shell wants it: in quotes if it has anything but the characters of a usual path.
func quote(word string) string {
	if !strings.ContainsFunc(word, func(r rune) bool {
		return !strings.ContainsRune("/._-", r) && !unicode.IsLetter(r) && !unicode.IsDigit(r)
	}) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// relative shortens a path for typing, where that is shorter.
func relative(path string) string {
	folder, err := os.Getwd()
	if err != nil {
		return path
	}
	if short, err := filepath.Rel(folder, path); err == nil && len(short) < len(path) {
		return short
	}
	return path
}

// result is what DEMO_JSON holds.
type result struct {
	OK            bool              `json:"ok"`
	Ats           int               `json:"ats"`
	Done          int               `json:"done"`
	Pods          int               `json:"pods"`
	DuplicatePods int               `json:"duplicate_pods"`
	Early         int               `json:"early"`
	MaxLatenessMS float64           `json:"max_lateness_ms"`
	Replicas      int               `json:"replicas"` // alive at the end
	Shards        int               `json:"shards"`
	Handoffs      []handoff         `json:"handoffs"`
	WatchMode     map[string]string `json:"watch_mode"`
}

func newResult(o *observation, checks []check) result {
	t := count(o)
	r := result{
		OK: verdict(checks) == nil, Ats: t.ats, Done: t.done, Pods: o.witness.Ats.Pods,
		DuplicatePods: o.witness.Ats.PodsRemade, Early: early(o), MaxLatenessMS: o.witness.Ats.Lateness.Max,
		Replicas: len(o.replicas), Shards: t.shards,
		Handoffs: append([]handoff{}, o.handoffs...), WatchMode: map[string]string{},
	}
	for name, w := range o.watches {
		r.WatchMode[name] = w.mode()
	}
	return r
}
