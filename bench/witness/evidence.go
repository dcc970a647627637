package witness

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tenure-dev/tenure/bench/audit"
)

const (
	// silence is how long an API server's log may be empty before it goes on. Its own Lease alone is renewed every ten
	// seconds, but a restart takes most of a minute on a busy machine. Lines that are missing here are also found by the
	// versions that later lines replace.
	silence = time.Minute
	// lastSilence is the same for the end of the logs, where nothing else shows that lines are missing, and where no API
	// server should be starting. Two renewals are missing by then: one alone may be late on a busy machine.
	lastSilence = 30 * time.Second
	// lateStart is how much later than the first an API server may have started.
	lateStart = 3 * time.Minute
	// bucket is the resolution at which silence is detected.
	bucket = 10 * time.Second
	// restartFelt is how long before its first renewal a new API server may have answered requests.
	restartFelt = 30 * time.Second
	// lastFelt is how long before its last renewal an API server may have committed a write whose line it never wrote.
	lastFelt = 10 * time.Second
)

// clusterLog is what the log of one cluster shows about itself.
type clusterLog struct {
	told     map[int][]version // versions that the log shows, by era
	servers  map[string]server // by Lease
	restarts []restart
}

// server is the API server process that renews a Lease.
type server struct {
	process string
	renewed int64 // when it last did
}

// restart is the end of an API server and the beginning of the next.
type restart struct {
	last  int64 // when the old one renewed its Lease for the last time
	first int64 // when the new one did for the first time
}

// version is the version in the answer to a write.
type version struct {
	span
	rv     uint64
	linked bool // the next write to the object also shows it
}

// link is a write as a step from one version of an object to the next.
type link struct {
	span
	object   int32
	rv, base uint64
	place    place
	loose    bool // the log doesn't show the version that it made: unknown outcome, a deletion, no body
	other    bool // somebody else's write to a Lease, which may be one of ours
	creates  bool // it created the object, or may have, if its outcome is unknown
}

// suspect is a service account that isn't known to be ours, with its writes that carry no shard and epoch.
type suspect struct {
	ours   bool
	count  int
	listed []Violation
}

// hear records that the log had a line at that time.
func (l *ledger) hear(e *Event) {
	c := l.clusters[e.Cluster]
	if c == nil {
		c = &clusterLog{told: map[int][]version{}, servers: map[string]server{}}
		l.clusters[e.Cluster] = c
	}
	folder := filepath.Dir(e.File)
	if l.heard[folder] == nil {
		l.heard[folder] = map[int64]bool{}
	}
	l.heard[folder][e.Completed-e.Completed%bucket.Microseconds()] = true
	if e.IsLease() && e.Namespace == "kube-system" && strings.HasPrefix(e.Name, "apiserver-") && e.Body != nil {
		if old := c.servers[e.Name]; old.process != "" && old.process != e.Body.Holder {
			c.restarts = append(c.restarts, restart{old.renewed, e.Received})
		}
		c.servers[e.Name] = server{e.Body.Holder, e.Received}
	}
}

// attribute checks that a write of ours says whose it is. A write is ours by its User-Agent or by its authenticated
// user.
func (l *ledger) attribute(e *Event, a agent) {
	review := strings.HasPrefix(e.Group, "authentication.") || strings.HasPrefix(e.Group, "authorization.")
	if e.Outcome() != audit.Committed || e.Resource == "events" || review {
		return
	}
	account := strings.HasPrefix(e.User, "system:serviceaccount:")
	if a.Fenced && account {
		l.suspect(e.User).ours = true
	}
	if a.Fenced || a.Incarnation != "" && (e.IsShardRecord() || e.IsLease()) {
		return
	}
	v := Violation{
		Kind: Unattributed, Object: l.objectOf(e).String(),
		Detail: fmt.Sprintf("%s by %q with the User-Agent %q, which doesn't name shard, epoch and incarnation", e.What(),
			e.User, e.UserAgent),
		First: l.lineAt(l.place(e), e.Received, e.Verb),
	}
	switch {
	case a.Tenure || slices.Contains(l.rules.Users, e.User):
		l.found.add(v)
	case account:
		s := l.suspect(e.User)
		if s.count++; s.count <= l.rules.MaxListed {
			s.listed = append(s.listed, v)
		}
	}
}

func (l *ledger) suspect(user string) *suspect {
	s := l.suspects[user]
	if s == nil {
		s = &suspect{}
		l.suspects[user] = s
	}
	return s
}

// link records a write to an object whose versions the log shows one after another, and reports a missing body that the
// judgement needs.
func (l *ledger) link(e *Event, a agent) {
	chained := chains(e, a)
	plain := e.Verb == "create" || e.Verb == "update" || e.Verb == "patch"
	bodied := chained && (e.Subresource == "" || e.Subresource == "status") ||
		a.Tenure && e.Subresource == "" && (e.IsPod() && e.Verb == "create" || e.IsDeployment())
	committed := e.Outcome() == audit.Committed
	told := e.Body != nil && !e.Body.Requested && committed
	if bodied && plain && committed && !told {
		l.found.add(Violation{
			Kind: Bodiless, Object: l.objectOf(e).String(), First: l.lineAt(l.place(e), e.Received, e.Verb),
			Detail: e.What() + " is logged without the object as stored: the audit policy needs level RequestResponse for it",
		})
	}
	if !chained && !e.IsLease() || e.Outcome() == audit.Rejected || e.Name == "" {
		return
	}
	k := link{span: span{e.Received, e.Completed}, object: l.objects.id(l.objectOf(e)), base: e.Base,
		place: l.place(e), loose: !plain || !told, other: !chained, creates: e.Verb == "create" || e.Code == 201}
	if told {
		k.rv = e.Body.ResourceVersion
	}
	l.links = append(l.links, k)
}

// chains reports whether the log shows the versions of an object one after another.
func chains(e *Event, a agent) bool { return e.IsAt() || e.IsShardRecord() || e.IsLease() && a.Tenure }

// noteVersion records the version in the answer to a write.
func (l *ledger) noteVersion(e *Event, a agent) {
	if e.Wrote() && e.Verb != "delete" && e.Body != nil && !e.Body.Requested && e.Body.ResourceVersion > e.Base {
		c, era := l.clusters[e.Cluster], l.era(e.Cluster, e.Received)
		c.told[era] = append(c.told[era], version{span{e.Received, e.Completed}, e.Body.ResourceVersion, chains(e, a)})
	}
}

// made returns, by era, the versions that were surely made by writes to linked objects, in the order in which those
// arrived. A write that changes nothing is answered with an old version, perhaps from before the log or the backup: one
// that is lower than a version that was answered before the write arrived. Such answers don't count.
func (c *clusterLog) made() map[int][]version {
	made := map[int][]version{}
	for era, told := range c.told {
		byEnd := slices.SortedFunc(slices.Values(told), func(a, b version) int { return cmp.Compare(a.end, b.end) })
		slices.SortFunc(told, func(a, b version) int { return cmp.Compare(a.start, b.start) })
		highest, ended := uint64(0), 0 // of those that were answered before
		for _, v := range told {
			for ; ended < len(byEnd) && byEnd[ended].end < v.start; ended++ {
				highest = max(highest, byEnd[ended].rv)
			}
			if v.linked && v.rv > highest {
				made[era] = append(made[era], v)
			}
		}
	}
	return made
}

// lowest returns the lowest of the versions whose writes arrived after a moment; the highest possible one for none.
func lowest(made []version, after int64) uint64 {
	least := uint64(math.MaxUint64)
	for _, v := range made {
		if v.start > after {
			least = min(least, v.rv)
		}
	}
	return least
}

// mayLack reports whether the line of a version may be missing because an API server ended after it had committed the
// write and before it wrote the line. The write came between two other ones: it wasn't committed before the first was,
// and not after the second had arrived. made are the versions of its era.
func (c *clusterLog) mayLack(rv uint64, made []version, after, before int64) bool {
	return slices.ContainsFunc(c.restarts, func(r restart) bool {
		long := slices.ContainsFunc(made, func(v version) bool { // the old server lived on for long
			return v.rv > rv && v.end < r.last-lastFelt.Microseconds()
		})
		return after <= r.first && before > r.first-restartFelt.Microseconds() &&
			rv < lowest(made, r.first) && !long // the new server has lost nothing
	})
}

// mayLackCreation reports whether the line of an object's creation may be missing likewise. first is its first line.
func (c *clusterLog) mayLackCreation(first link) bool {
	return slices.ContainsFunc(c.restarts, func(r restart) bool {
		return first.end >= r.last-lastFelt.Microseconds()
	})
}

// judgeUnheard reports clusters whose shards had holders, and of which no log has a line.
func (l *ledger) judgeUnheard() {
	told := map[string]bool{}
	for _, shard := range sortedShards(l.records) {
		held := slices.ContainsFunc(l.records[shard], func(w recordWrite) bool { return w.state.Holder != "" })
		if held && l.clusters[l.cluster(shard.Cluster)] == nil && !told[shard.Cluster] {
			told[shard.Cluster] = true
			l.found.add(Violation{Kind: MissingFile, Detail: "shards of " + shard.Cluster +
				" had holders, and no log has a line of that cluster: put its folder beside the others"})
		}
	}
}

// judgeEmpty reports folders whose logs have no line at all: whatever is looked for in them would seem not to have
// happened.
func (l *ledger) judgeEmpty(logs []audit.Log) {
	for i, log := range logs {
		folder := filepath.Dir(log.Path)
		if l.heard[folder] == nil && (i == 0 || filepath.Dir(logs[i-1].Path) != folder) {
			l.found.add(Violation{Kind: MissingFile, Detail: "the log of " + log.Cluster + " (" + folder +
				") has no line at all: put it back, or take the folder away"})
		}
	}
}

// judgeEvidence reports what the logs should have and lack.
func (l *ledger) judgeEvidence(ats AtStats) {
	absent := func(missing bool, kind Kind, detail string) {
		if missing {
			l.found.add(Violation{Kind: kind, Detail: detail})
		}
	}
	absent(len(l.writes) == 0, NoWrites, "no write carries a shard and an epoch: I1 and I2 are judged on nothing")
	absent(ats.Seen == 0, NoAts, "no At is in the logs or in a list: I4 and I7 are judged on nothing")
	absent(len(l.records) == 0, NoRecords,
		"no Shard record with its body (home cluster, level RequestResponse): nobody is known to hold anything, I5 is "+
			"judged on nothing")
	sealable := false
	for _, life := range l.leases {
		sealable = sealable || life.bodied
	}
	absent(!sealable, NoLeases, "no Lease of ours with its body (home cluster, level RequestResponse): seals are unknown")
	for _, s := range l.suspects {
		if !s.ours {
			continue
		}
		for _, v := range s.listed {
			l.found.add(v)
		}
		if _, waived := l.found.rules.waives(Unattributed); !waived {
			l.found.counts[Unattributed] += s.count - len(s.listed)
		}
	}
	l.judgeLinks()
	l.judgeSilence()
}

// versionIndex is what all logs show of versions.
type versionIndex struct {
	last     map[objectID]uint64          // the versions that objects have at the end, as far as they were given
	made     map[string]map[int][]version // by cluster and era
	lowest   map[string]map[int]uint64    // the lowest of these
	anywhere map[shownVersion]bool        // in any era
}

type shownVersion struct {
	object objectID
	rv     uint64
}

// chain is one object's writes in order, and what its cluster's log shows besides.
type chain struct {
	links    []link
	object   objectID
	log      *clusterLog
	made     []version       // all versions of the cluster in that era
	written  uint64          // the lowest of them
	versions map[uint64]bool // of the object itself
	// loose counts the writes so far whose versions aren't known: each may have made one.
	loose int
}

// judgeLinks looks for versions that were replaced and that no line shows.
func (l *ledger) judgeLinks() {
	slices.SortFunc(l.links, func(a, b link) int {
		return cmp.Or(cmp.Compare(a.object, b.object), cmp.Compare(a.start, b.start), cmp.Compare(a.rv, b.rv))
	})
	index := l.indexVersions()
	for links := range runs(l.links, func(a, b link) bool { return a.object == b.object }) {
		if !slices.ContainsFunc(links, func(k link) bool { return !k.other }) {
			continue
		}
		object := l.objects.list[links[0].object]
		c := &chain{links: links, object: object, log: l.clusters[object.cluster], versions: make(map[uint64]bool),
			made: index.made[object.cluster][object.era], written: index.lowest[object.cluster][object.era]}
		for _, k := range links {
			c.versions[k.rv] = true
		}
		l.judgeCreation(c)
		l.judgeReplaced(c, index)
		l.judgeLast(c, index.last[object])
	}
}

func (l *ledger) indexVersions() versionIndex {
	index := versionIndex{map[objectID]uint64{}, map[string]map[int][]version{}, map[string]map[int]uint64{},
		map[shownVersion]bool{}}
	for _, v := range l.facts.Versions {
		index.last[objectID{v.Cluster, v.Group, v.Resource, v.Namespace, v.Name, l.era(v.Cluster, l.to)}] = v.ResourceVersion
	}
	for name, c := range l.clusters {
		index.made[name], index.lowest[name] = c.made(), map[int]uint64{}
		for era, made := range index.made[name] {
			index.lowest[name][era] = lowest(made, 0)
		}
	}
	for _, k := range l.links {
		index.anywhere[shownVersion{l.objects.list[k.object].anyEra(), k.rv}] = true
	}
	return index
}

// missingLine reports a version that no line shows, by the line that shows that it existed.
func (l *ledger) missingLine(c *chain, k link, detail string) {
	l.found.add(Violation{
		Kind: MissingLine, Object: c.object.String(), First: l.lineAt(k.place, k.start, ""), Detail: detail,
	})
}

// judgeCreation looks for the line of the object's creation, if the logs begin before it.
func (l *ledger) judgeCreation(c *chain) {
	first := c.links[0]
	created := slices.ContainsFunc(c.links, func(k link) bool { return k.creates && k.start <= first.end })
	switch {
	case !l.facts.Whole || c.object.era > 0 || created:
	case c.log.mayLackCreation(first):
		l.stats.Lost++
	default:
		l.missingLine(c, first, "no line tells who created it: the beginning is missing, or a line")
	}
}

// judgeReplaced looks for the line of each version that a write replaced.
func (l *ledger) judgeReplaced(c *chain, index versionIndex) {
	for i, k := range c.links {
		known := k.base == 0 || k.base < c.written || c.versions[k.base]
		if !known && k.loose && index.anywhere[shownVersion{c.object.anyEra(), k.base}] {
			continue // of a history that a restore ended: a request without an answer that can't have been carried out
		}
		excused := !known && c.loose > 0
		if excused {
			c.loose--
			c.versions[k.base] = true // others may have read that version, too
		}
		if k.loose {
			c.loose++
		}
		if known || excused {
			continue
		}
		after := int64(0)
		if i > 0 {
			after = c.links[i-1].end
		}
		if c.log.mayLack(k.base, c.made, after, k.start) {
			l.stats.Lost++
			continue
		}
		l.missingLine(c, k, fmt.Sprintf(
			"it replaces version %d, and no line tells who wrote that: a file is missing or was cut", k.base))
	}
}

// judgeLast looks for the line of the version that the object has at the end, 0 if that isn't known.
func (l *ledger) judgeLast(c *chain, rv uint64) {
	last := c.links[len(c.links)-1]
	if rv > 0 && rv >= c.written && !c.versions[rv] && c.loose == 0 && !c.log.mayLack(rv, c.made, last.end, never) {
		l.missingLine(c, last, fmt.Sprintf(
			"it has version %d at the end, and no line tells who wrote that: a file is missing or was cut", rv))
	}
}

// judgeSilence finds API servers whose logs have a hole. A virtual cluster may well be silent for longer.
func (l *ledger) judgeSilence() {
	begin := int64(never)
	for _, buckets := range l.heard {
		begin = min(begin, slices.Min(slices.Collect(maps.Keys(buckets))))
	}
	for folder, buckets := range l.heard {
		name := filepath.Base(folder)
		// It begins and ends with the other logs, or ends when they were read.
		heard := slices.Concat([]int64{begin}, slices.Sorted(maps.Keys(buckets)), []int64{min(l.to, l.reads)})
		for i := 1; i < len(heard); i++ {
			from, to := heard[i-1]+bucket.Microseconds(), heard[i]
			limit := silence
			switch i {
			case 1:
				limit = lateStart
			case len(heard) - 1:
				limit = lastSilence
			}
			if to-from >= limit.Microseconds() && l.era(name, from) == l.era(name, to) {
				l.found.add(Violation{Kind: MissingFile, Detail: fmt.Sprintf(
					"the log of %s holds nothing from %s to %s: a file is missing or was cut, or its API server was down", name,
					stamp(from), stamp(to))})
			}
		}
	}
}
