package shardtest

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tenure-dev/tenure/shard/keyspace"
)

// Tell runs a story: lines that begin with "> " are commands, what follows each is replaced by what happened, and
// lines that begin with "#" stay as they are. Nothing in a story is left to chance: a message takes 6 ms, a watch lags
// 6 ms, caches are warm after 30 ms, reconciles end within 11 ms.
//
//	> clusters west:1        the clusters that exist, each with the bits that it is divided by
//	> alias east west        east is another name of the cluster west
//	> start a b              processes start
//	> run 10s                time passes
//	> show                   the records as they are
//	> pause a 30s            or sleep, jump, crash, exit, slow-warm, slow-drain, cut, freeze, home-away: see [FaultKind]
//	> kubelets               from now on kubelets report how processes end; misreport a earlier: see [misreports]
//	> lose-reply a Planned   or lose-request, late, refuse: strikes a's next request whose String has this prefix
//	> delete-shard west/0    or replace-shard, foreign-shard; delete-lease a; pin west/0 b
//	> delete-layout west     or edit-layout, replace-layout, remake-cluster; exchange west
func Tell(script []byte) ([]byte, error) {
	var out bytes.Buffer
	w := &world{script: true, out: &out}
	w.reset(Schedule{Nodes: 4, Faulty: 1 << 60, Lag: 10 * time.Millisecond})
	for number, line := range strings.Split(strings.TrimRight(string(script), "\n"), "\n") {
		command, isCommand := strings.CutPrefix(line, "> ")
		switch {
		case isCommand:
			fmt.Fprintln(&out, line)
			if err := w.obey(strings.Fields(command)); err != nil {
				return nil, fmt.Errorf("line %d: %q: %w", number+1, line, err)
			}
		case strings.HasPrefix(line, "#"), line == "":
			fmt.Fprintln(&out, line)
		}
	}
	if w.failure != "" {
		return out.Bytes(), fmt.Errorf("an invariant is broken %s", w.failure)
	}
	for i := range w.nodes {
		for _, s := range w.nodes[i].armed {
			return out.Bytes(), fmt.Errorf("%v never struck: %s made no request that begins with %q", s.fault.Kind,
				w.nodes[i].name, s.subject)
		}
	}
	return out.Bytes(), nil
}

// obey carries out one command.
func (w *world) obey(words []string) error {
	command, args := words[0], words[1:]
	switch command {
	case "clusters":
		return w.setClusters(args)
	case "alias":
		w.alias = map[keyspace.ClusterName]keyspace.ClusterName{keyspace.ClusterName(args[0]): keyspace.ClusterName(args[1])}
		return nil
	case "start":
		for _, name := range args {
			n, err := w.byName(name)
			if err != nil {
				return err
			}
			n.start()
		}
		return nil
	case "run":
		d, err := time.ParseDuration(args[0])
		if err != nil {
			return fmt.Errorf("reading how long: %w", err)
		}
		w.runFor(d)
		return nil
	case "kubelets":
		w.schedule.Kubelets = true
		return nil
	case "show":
		w.show()
		return nil
	}
	return w.obeyFault(command, args)
}

// obeyFault carries out a command that is a fault.
func (w *world) obeyFault(command string, args []string) error {
	f := Fault{}
	if err := f.Kind.UnmarshalText([]byte(command)); err != nil {
		return err
	}
	for _, arg := range args {
		if err := w.argument(&f, arg); err != nil {
			return err
		}
	}
	if f.Kind.onRequest() {
		n := &w.nodes[f.Node]
		n.armed = append(n.armed, strike{fault: &f, subject: args[1]})
		return nil
	}
	w.strike(&f)
	return nil
}

// argument reads one word of a fault: a process, a shard, a stream, a direction, a duration.
func (w *world) argument(f *Fault, arg string) error {
	if d, err := time.ParseDuration(arg); err == nil {
		f.For = d
		return nil
	}
	switch arg {
	case "requests":
		f.N = 1
	case "answers":
		f.N = 2
	case "relist":
		f.Relist = true
	}
	if lie := slices.Index(misreports, arg); lie >= 0 {
		f.N = lie
	}
	for s := range streams {
		if s.String() == arg {
			f.N = int(s)
		}
	}
	if n, err := w.byName(arg); err == nil {
		f.Node = n.index
	}
	if at := slices.Index(w.names, keyspace.ClusterName(arg)); at >= 0 {
		f.N = at
	}
	if bits, err := strconv.Atoi(arg); err == nil { // the bits of a layout
		for f.N %= len(w.names); f.N%3 != bits%3; {
			f.N += len(w.names)
		}
	}
	if id, err := keyspace.ParseShardID(arg); err == nil {
		f.N = w.shardIndex(id)
	}
	return nil
}

func (w *world) byName(name string) (*node, error) {
	if len(name) != 1 || int(name[0]-'a') >= len(w.nodes) {
		return nil, fmt.Errorf("%q is none of the %d processes", name, len(w.nodes))
	}
	return &w.nodes[name[0]-'a'], nil
}

func (w *world) setClusters(args []string) error {
	clear(w.clusters)
	w.names = w.names[:0]
	for _, arg := range args {
		name, text, _ := strings.Cut(arg, ":")
		bits, err := strconv.Atoi(text)
		if err != nil {
			return fmt.Errorf("reading the bits: %w", err)
		}
		w.clusters[keyspace.ClusterName(name)] = bits
		w.names = append(w.names, keyspace.ClusterName(name))
		for _, p := range keyspace.Partition(bits) {
			w.shardIndex(keyspace.ShardID{Cluster: keyspace.ClusterName(name), Prefix: p})
		}
	}
	for i := range w.nodes {
		w.nodes[i].reaches = resized(w.nodes[i].reaches, len(w.names))
	}
	w.tellClusters()
	return nil
}

// runFor runs all events of the next d.
func (w *world) runFor(d time.Duration) {
	until := w.now + d
	for len(w.queue.heap) > 0 && w.queue.heap[0].at <= until && w.failure == "" {
		w.next()
	}
	w.now = until
}

// show prints the records, and which process serves which shards.
func (w *world) show() {
	for i := range w.store.shards.all {
		sh := &w.store.shards.all[i]
		holder := string(sh.Holder)
		if holder == "" {
			holder = "nobody"
		}
		if sh.Retired {
			fmt.Fprintf(w.out, "  %-8s retired at epoch %d\n", sh.ID, sh.Epoch)
			continue
		}
		fmt.Fprintf(w.out, "  %-8s held by %s at epoch %d, planned for %s\n", sh.ID, holder, sh.Epoch, sh.Assignee)
	}
	for i := range w.nodes {
		n := &w.nodes[i]
		if !n.up {
			continue
		}
		var serves []string
		for j, g := range n.gates {
			if g.state != closed && n.valid() {
				serves = append(serves, w.ids[j].String())
			}
		}
		if len(serves) == 0 {
			serves = []string{"nothing"}
		}
		fmt.Fprintf(w.out, "  %s serves %s\n", n.id, strings.Join(serves, ", "))
	}
	fmt.Fprintf(w.out, "  coordinator: %s, epoch floor %d\n", w.store.lead.Holder, w.store.lead.Floor)
}

// strike is a fault that waits for a request of a kind.
type strike struct {
	fault   *Fault
	subject string
}

// struck removes and returns the fault that a story has armed for a request; nil if there is none.
func (n *node) struck(req *request) *Fault {
	for i, s := range n.armed {
		if strings.HasPrefix(req.String(), s.subject) {
			n.armed = append(n.armed[:i], n.armed[i+1:]...)
			return s.fault
		}
	}
	return nil
}
