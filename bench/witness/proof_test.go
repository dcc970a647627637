package witness

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/tenure-dev/tenure/bench/audit"
	"github.com/tenure-dev/tenure/shard/protocol"
	"github.com/tenure-dev/tenure/test/expect"
)

// ms is milliseconds after the start of a small log.
func ms(n int64) int64 { return modelStart + n*1000 }

// kindsOf are the objects of small logs.
var kindsOf = map[string]Event{
	"at":    {Cluster: "west", Group: audit.AtGroup, Resource: "ats", Namespace: "ns"},
	"pod":   {Cluster: "west", Resource: "pods", Namespace: "ns"},
	"web":   {Cluster: "west", Group: audit.AppsGroup, Resource: "deployments", Namespace: "ns"},
	"map":   {Cluster: "west", Resource: "configmaps", Namespace: "ns"},
	"lease": {Cluster: "home", Group: audit.LeaseGroup, Resource: "leases", Namespace: "tenure"},
	"api":   {Cluster: "west", Group: audit.LeaseGroup, Resource: "leases", Namespace: "kube-system"},
	"rec":   {Cluster: "home", Group: audit.ShardGroup, Resource: "shards", Subresource: "status", Namespace: "tenure"},
}

// parse reads a small log: "FROM-TO SENDER VERB KIND:NAME [FIELD=VALUE...]" on each line, times in milliseconds. SENDER
// is SHARD@EPOCH:REPLICA, ~REPLICA for coordination, or anybody else's User-Agent.
func parse(t testing.TB, log string) (events []Event) {
	for line := range strings.Lines(log) {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		kind, name, _ := strings.Cut(words[3], ":")
		e := kindsOf[kind]
		e.File, e.Line, e.Stage, e.Code, e.Verb, e.Name = e.Cluster+"/audit.log", len(events)+1, "ResponseComplete", 200,
			words[2], name
		var from, to int64
		if _, err := fmt.Sscanf(words[0], "%d-%d", &from, &to); err != nil || e.Resource == "" {
			t.Fatalf("line %q: %v", line, err)
		}
		e.Received, e.Completed, e.UserAgent = ms(from), ms(to), words[1]
		if shard, rest, ok := strings.Cut(words[1], "@"); ok {
			epoch, replica, _ := strings.Cut(rest, ":")
			e.UserAgent = fmt.Sprintf("tenure/v1 (shard=%s; epoch=%s; incarnation=%s)", shard, epoch, replica)
		} else if replica, ok := strings.CutPrefix(words[1], "~"); ok {
			e.UserAgent = coordinating(replica)
		}
		if e.Verb != "delete" {
			e.Body = &Body{}
		}
		if kind == "rec" {
			shard, _ := audit.ParseShard(name)
			e.Name, e.Body.Shard = strings.ReplaceAll(name, "/", "."), &ShardState{Cluster: shard.Cluster, Prefix: shard.Prefix}
		}
		for _, field := range words[4:] {
			set(t, &e, field)
		}
		events = append(events, e)
	}
	return events
}

// set sets one FIELD=VALUE.
func set(t testing.TB, e *Event, field string) {
	name, value, _ := strings.Cut(field, "=")
	n, _ := strconv.ParseInt(value, 10, 64)
	texts := map[string]func(string){
		"user": func(s string) { e.User = s }, "message": func(s string) { e.Message = s },
		"in":   func(s string) { e.Cluster = s },
		"sub":  func(s string) { e.Subresource = s },
		"code": func(string) { e.Code = int(n) }, "base": func(string) { e.Base = uint64(n) },
		"nobody": func(string) { e.Body = nil },
		"rv":     func(string) { e.Body.ResourceVersion = uint64(n) }, "due": func(string) { e.Body.Schedule = stamp(ms(n)) },
		"by":     func(s string) { e.Body.Pod = s },
		"missed": func(string) { e.Body.Missed = true }, "deadline": func(string) { e.Body.Deadline = n },
		"phase": func(s string) { e.Body.Phase = s }, "uid": func(s string) { e.Body.UID = s },
		"of":   func(s string) { e.Body.CopyOf = s },
		"slot": func(s string) { e.Body.Slot = s }, "sealed": func(s string) { e.Body.SealedBy = s },
		"unfit":     func(s string) { e.Body.Unfit = s },
		"owner":     func(s string) { e.Body.OwnerUID = s },
		"server":    func(s string) { e.Body.Holder = s },
		"replicate": func(string) { e.Body.Replicated = true },
		"h":         func(s string) { e.Body.Shard.Holder = s }, "e": func(string) { e.Body.Shard.Epoch = uint64(n) },
		"to": func(s string) { e.Body.Shard.Assignee = s }, "w": func(s string) { e.Body.Shard.Warm = s },
		"n": func(string) { e.Body.Shard.Objects = n }, "move": func(s string) { e.Body.Shard.Move = s },
	}
	if texts[name] == nil {
		t.Fatalf("no field %q", name)
	}
	texts[name](value)
}

// shardOf names the shard of a UID with a prefix of one bit.
func shardOf(uid string) string {
	return "west/" + strconv.Itoa(audit.SlotOf(uid)>>7)
}

func otherShard(uid string) string {
	return "west/" + strconv.Itoa(1-audit.SlotOf(uid)>>7)
}

func TestWhatIsProofAndWhatIsNot(t *testing.T) {
	mine, others, slot := shardOf("u1")+"@1:a", otherShard("u1")+"@1:a", fmt.Sprintf("%02x", audit.SlotOf("u1"))
	source := "1-2 - create web:x uid=u1\n"
	held := "0-1 ~a create rec:west/ h=a e=1 rv=10 move=Join\n"
	crash := "20-21 ~b patch rec:west/ h=b e=2 rv=12 move=Crash\n"
	joined := "0-1 ~a create lease:a\n0-1 ~b create lease:b\n0-1 ~c create lease:c\n"
	released := joined + "2-3 ~a patch rec:west/ h=a e=1 to=b rv=11\n" +
		"4-5 ~b patch rec:west/ h=a e=1 to=b w=b rv=12\n6-7 ~a patch rec:west/ e=1 to=b rv=13\n"
	chain := joined + "9-10 ~a patch rec:west/ h=b e=2 move=Planned code=504 rv=0\n" +
		"16-17 ~c patch rec:west/ h=c e=3 move=Crash code=504 rv=0\n"
	shown := "20-21 ~a patch rec:west/ h=c e=3 move=Crash rv=14"
	all := func(ks ...Kind) map[Kind]int {
		m := map[Kind]int{}
		for _, k := range ks {
			m[k]++
		}
		return m
	}
	tests := []struct {
		name string
		log  string
		want map[Kind]int
	}{
		{"a lower epoch that arrives after a higher one was answered falls",
			"10-20 west/@2:b update at:a\n21-30 west/@1:a update at:a", all(FallingEpoch, InterleavedKey, InterleavedShard)},
		{"in flight together proves nothing", "10-20 west/@2:b update at:a\n20-30 west/@1:a update at:a", nil},
		{"in flight together, but the versions tell",
			"10-20 west/@2:b update at:a rv=7\n15-18 west/@1:a update at:a rv=8", all(FallingEpoch)},
		{"in flight together, and the versions rise",
			"10-20 west/@2:b update at:a rv=8\n15-18 west/@1:a update at:a rv=7", nil},
		{"an At and its Pod are one key",
			"10-20 west/@2:b update at:a\n21-30 west/@1:a create pod:a-pod", all(InterleavedKey, InterleavedShard)},
		{"two objects of one shard are two keys",
			"10-20 west/@2:b patch web:x\n21-30 west/@1:a patch web:y", all(InterleavedShard)},
		{"a parent that writes after its child shares slots with it",
			"10-20 west/01@2:b patch web:x\n21-30 west/@1:a patch web:y", all(InterleavedShard)},
		{"epochs of two shards can't be compared", "10-20 west/0@9:b patch web:x\n21-30 west/1@1:a patch web:x", nil},
		{"a refused write breaks nothing", "10-20 west/@2:b update at:a\n21-30 west/@1:a update at:a code=409", nil},
		{"a write with an unknown outcome breaks nothing",
			"10-20 west/@2:b update at:a\n21-30 west/@1:a update at:a code=504", nil},
		{"two incarnations with one epoch", "10-20 west/@2:b patch web:x\n21-30 west/@2:a patch web:y", all(TwoHolders)},
		{"two incarnations with one epoch in a parent and its child",
			"10-20 west/@2:b patch web:x\n21-30 west/1@2:a patch web:y", all(TwoHolders)},

		{"a Pod that was deleted may be made again",
			"0-1 - create at:a due=0\n2-3 west/@1:a create pod:a-pod\n4-5 - delete pod:a-pod\n" +
				"6-7 west/@1:a create pod:a-pod", nil},
		{"a Pod made again without a deletion",
			"0-1 - create at:a due=0\n2-3 west/@1:a create pod:a-pod\n6-7 west/@1:a create pod:a-pod", all(DuplicatePod)},
		{"a second Pod of another name while the first lives",
			"0-1 - create at:a due=0\n2-3 west/@1:a create pod:a-pod\n4-5 west/@1:a create pod:a-other\n" +
				"6-7 - delete pod:a-pod", all(DuplicatePod)},
		{"a second Pod of another name whose create overlaps the first one's deletion",
			"0-1 - create at:a due=0\n2-3 west/@1:a create pod:a-pod\n4-7 west/@1:a create pod:a-other\n" +
				"6-8 - delete pod:a-pod", nil},
		{"Pods whose names the server generates", "2-3 west/@1:a create pod:\n4-5 - create pod:", all(UnnamedPod)},
		{"a Pod after DONE, deleted in between",
			"0-1 - create at:a due=0\n2-3 west/@1:a create pod:a-pod\n4-5 west/@1:a update at:a phase=DONE\n" +
				"6-7 - delete pod:a-pod\n8-9 west/@1:a create pod:a-pod",
			all(PodAfterDone)},
		{"a Pod one millisecond before its time", "0-1 - create at:a due=5\n4-9 west/@1:a create pod:a-pod", all(EarlyPod)},
		{"a Pod in its millisecond", "0-1 - create at:a due=5\n5-9 west/@1:a create pod:a-pod", nil},
		{"a Pod at the time that its At had before it was put off",
			"0-1 - create at:a due=50\n12-13 - update at:a due=500\n52-53 west/@1:a create pod:a-pod", all(EarlyPod)},
		{"… while that was in flight",
			"0-1 - create at:a due=50\n12-52 - update at:a due=500\n52-53 west/@1:a create pod:a-pod", nil},
		{"a Pod while an edit to an earlier time was in flight",
			"0-1 - create at:a due=500\n12-53 - update at:a due=50\n52-53 west/@1:a create pod:a-pod", nil},
		{"a Pod after two edits, the second of which got no answer",
			"0-1 - create at:a due=50\n12-13 - update at:a due=500\n" +
				"14-15 - update at:a due=50 code=504\n52-53 west/@1:a create pod:a-pod", nil},
		{"… both in flight together", "0-1 - create at:a due=500\n12-20 - update at:a due=50\n" +
			"13-14 - update at:a due=500\n52-53 west/@1:a create pod:a-pod", nil},
		{"… and a later line shows which one holds", "0-1 - create at:a due=500\n12-20 - update at:a due=50\n" +
			"13-14 - update at:a due=500\n30-31 west/@1:a update at:a due=500\n52-53 west/@1:a create pod:a-pod",
			all(EarlyPod)},
		{"a Pod in a log that begins later", "52-53 west/@1:a create pod:a-pod\n54-55 - update at:a due=50", nil},
		{"a Pod at a time that its At has had since", "0-1 - create at:a due=500\n12-13 - update at:a due=50\n" +
			"52-53 west/@1:a create pod:a-pod\n60-61 west/@1:a update at:a due=50 phase=DONE by=a-pod", nil},
		{"an At that is due and has nothing", "0-1 - create at:a due=5\n5-9 west/@1:a patch web:x", all(LostAt)},
		{"an At that is deleted long after it was due", "0-1 - create at:a due=5\n50-51 - delete at:a", all(LostAt)},
		{"an At that is done without ever having run",
			"0-1 - create at:a due=0\n5-9 west/@1:a update at:a phase=DONE", all(LostAt)},
		{"an At that missed its deadline", "0-1 - create at:a due=0\n5-9 west/@1:a update at:a phase=DONE missed=1", nil},
		{"an At that is called missed before its time",
			"0-1 - create at:a due=9\n5-8 west/@1:a update at:a due=9 phase=DONE missed=1", all(LostAt)},
		{"an At that is called missed a millisecond before its deadline",
			"0-1 - create at:a due=5\n900-1004 west/@1:a update at:a due=5 phase=DONE missed=1 deadline=1", all(LostAt)},
		{"… and at its deadline",
			"0-1 - create at:a due=5\n900-1005 west/@1:a update at:a due=5 phase=DONE missed=1 deadline=1", nil},
		{"… and at the deadline that it had by then", "0-1 - create at:a due=900000\n2-3 - update at:a due=5 deadline=1\n" +
			"900-1005 west/@1:a update at:a due=5 phase=DONE missed=1 deadline=1", nil},
		{"an At that waits and is deleted by a replica", "0-1 - create at:a due=50\n5-6 west/@1:a delete at:a", all(LostAt)},
		{"… after its end",
			"0-1 - create at:a due=0\n5-6 west/@1:a update at:a phase=DONE missed=1\n8-9 west/@1:a delete at:a", nil},
		{"… after its end, which may have got no answer", "0-1 - create at:a due=50\n" +
			"5-6 west/@1:a update at:a phase=DONE missed=1 code=504\n8-9 west/@1:a delete at:a", nil},
		{"… after its end, perhaps, which the log is too short for", "8-9 west/@1:a delete at:a", nil},
		{"… after a user did", "0-1 - create at:a due=50\n3-4 - delete at:a\n5-6 west/@1:a delete at:a", nil},
		{"… while it was made anew, which may be the one before", "0-1 - create at:a due=0 uid=u1\n" +
			"2-3 west/@1:a update at:a phase=DONE missed=1 uid=u1\n9-21 - create at:a due=500 uid=u2\n" +
			"10-20 west/@1:a delete at:a", nil},
		{"… after an API server ended, and with it perhaps a line", "0-1 - create at:a due=50\n" +
			"0-1 s create api:apiserver-x server=1 in=west\n3-4 s update api:apiserver-x server=2 in=west\n" +
			"5-6 west/@1:a delete at:a", nil},
		{"an At that somebody else called done", "0-1 - create at:a due=0\n5-9 - update at:a phase=DONE", nil},
		{"an At that is not due yet", "0-1 - create at:a due=50\n5-9 west/@1:a patch web:x", nil},
		{"an At that is made again under its name has a Pod of its own",
			"0-1 - create at:a due=0\n2-3 west/@1:a create pod:a-pod\n4-5 west/@1:a update at:a phase=DONE\n" +
				"6-7 - delete at:a\n8-9 - delete pod:a-pod\n" +
				"10-11 - create at:a due=0\n12-13 west/@1:a create pod:a-pod", nil},

		{"an At of the writer's shard", "1-2 " + mine + " update at:a uid=u1", nil},
		{"an At of another shard", "1-2 " + others + " update at:a uid=u1", all(WrongShard)},
		{"an At of another cluster", "1-2 east/@1:a update at:a uid=u1", all(WrongShard)},
		{"a Pod of another cluster, whose At's slot the writer's shard has",
			"1-2 " + mine + " create pod:a-pod owner=u1 in=east", all(WrongShard)},
		{"… and its deletion", "1-2 " + mine + " delete pod:a-pod in=east", all(WrongShard)},
		{"a Pod of another shard's At", "1-2 " + others + " create pod:a-pod owner=u1", all(WrongShard)},
		{"a copy of the writer's source, in another cluster",
			"1-2 " + mine + " patch web:x of=u1 uid=u2 in=east slot=" + slot, nil},
		{"a copy of another shard's source", "1-2 " + others + " patch web:x of=u1 in=east slot=" + slot, all(WrongShard)},
		{"a copy with another label than its source's slot",
			"1-2 " + mine + " patch web:x of=u1 in=east slot=zz", all(WrongShard)},
		{"a source of another shard", "1-2 " + others + " patch web:x uid=u1", all(WrongShard)},
		{"the status of a source of another shard", "1-2 " + others + " patch web:x uid=u1 sub=status", all(WrongShard)},
		{"… that an earlier line names", source + "3-4 " + others + " patch web:x nobody sub=status", all(WrongShard)},
		{"… of the writer's shard", source + "3-4 " + mine + " patch web:x nobody sub=status", nil},
		{"… that was made meanwhile, perhaps in place of another",
			source + "2-4 " + others + " patch web:x nobody sub=status", nil},
		{"… that was made again, of the writer's shard", source + "3-4 " + others + " patch web:x nobody sub=status\n" +
			"3-4 - delete web:x\n4-5 - create web:x uid=another", nil},
		{"the scale of a source of another shard", source + "3-4 " + others + " update web:x nobody sub=scale",
			all(WrongShard)},
		{"the deletion of a copy of another shard's source", "1-2 " + mine + " patch web:x of=u1 uid=u2 in=east\n3-4 " +
			others + " delete web:x in=east", all(WrongShard)},
		{"… which may have been made again", "1-2 " + mine + " patch web:x of=u1 uid=u2 in=east\n2-3 " + others +
			" patch web:x in=east code=504\n3-4 " + others + " delete web:x in=east", nil},
		{"the deletion of somebody's Deployment in another cluster",
			"1-2 - create web:x uid=u1 in=east\n3-4 " + others + " delete web:x in=east", nil},
		{"the deletion of another shard's At",
			"1-2 - create at:a due=50 uid=u1\n3-4 " + others + " delete at:a", all(WrongShard, LostAt)},
		{"the deletion of another shard's Pod",
			"1-2 " + mine + " create pod:a-pod owner=u1\n3-4 " + others + " delete pod:a-pod", all(WrongShard)},

		{"a write under a grant", held + "2-3 west/@1:a patch web:x", nil},
		{"a write under an epoch that was never granted", held + "2-3 west/@3:a patch web:x", all(WriteWithoutGrant)},
		{"a write under a shard without a record", held + "2-3 west/0@1:a patch web:x", all(WriteWithoutGrant)},
		{"a write after a handoff", held + "9-10 ~a patch rec:west/ h=b e=2 rv=11\n12-13 west/@1:a patch web:x",
			all(WriteAfterHandoff)},
		{"a write in flight when its holder released the shard",
			held + "9-12 ~a patch rec:west/ e=1 rv=11\n12-13 west/@1:a patch web:x", nil},
		{"a write after that", held + "9-12 ~a patch rec:west/ e=1 rv=11\n13-14 west/@1:a patch web:x",
			all(WriteAfterHandoff)},
		{"a write after the record was made anew, which releases nothing", held +
			"11-12 - create rec:west/ rv=20\n13-14 west/@1:a patch web:x", nil},
		{"a write under the next epoch",
			held + "9-12 ~a patch rec:west/ e=1 rv=11\n14-15 ~b patch rec:west/ h=b e=2 rv=12\n16-17 west/@2:b patch web:x",
			nil},
		{"a record that gives an epoch twice", held + "9-10 ~b patch rec:west/ h=b e=1 rv=11", all(TwoHolders)},
		{"a record whose epoch falls", held + "9-10 ~a patch rec:west/ h=a e=0 rv=11", all(RecordEpochFell)},
		{"sixteen writes in flight at a handoff", held + strings.Repeat("2-50 west/@1:a patch web:x\n", 16) +
			"9-10 ~a patch rec:west/ h=b e=2 rv=11", nil},
		{"seventeen of them", held + strings.Repeat("2-50 west/@1:a patch web:x\n", 17) +
			"9-10 ~a patch rec:west/ h=b e=2 rv=11",
			all(ManyInFlight)},
		{"writes before a handoff, in flight with a request for something else that got no answer", held +
			"2-3 ~b patch rec:west/ h=a e=1 code=504 rv=0\n" + strings.Repeat("4-5 west/@1:a patch web:x\n", 17) +
			"9-10 ~a patch rec:west/ h=b e=2 rv=11", nil},
		{"writes before a handoff, in flight with a plan for it that got no answer", held +
			"2-3 ~c patch rec:west/ to=b code=504 rv=0\n" + strings.Repeat("4-5 west/@1:a patch web:x\n", 17) +
			"9-10 ~a patch rec:west/ h=b e=2 rv=11", nil},
		{"writes before a handoff is shown, in flight with an earlier request for it that got no answer", held +
			"2-3 ~a patch rec:west/ h=b e=2 code=504 rv=0\n" + strings.Repeat("2-5 west/@1:a patch web:x\n", 17) +
			"9-10 ~a patch rec:west/ h=b e=2 rv=11", all(ManyInFlight)},
		{"a dead incarnation that writes to its record",
			held + joined + "5-6 ~b patch lease:a sealed=b\n9-10 ~a patch rec:west/ h=a e=1 n=1 rv=11",
			all(WriteAfterSeal)},
		{"a write from before the log began", "10-11 ~a patch rec:west/ h=a e=7 rv=10\n2-3 west/@6:z patch web:x", nil},
		{"a write under a claim whose answer was lost, seen in a later version",
			held + "9-10 ~b patch rec:west/ h=b e=2 code=504 rv=0\n12-13 west/@2:b patch web:x\n" +
				"20-21 ~b patch rec:west/ h=b e=2 rv=12", nil},
		{"a write answered before such a claim arrived",
			held + "9-10 ~b patch rec:west/ h=b e=2 code=504 rv=0\n5-6 west/@2:b patch web:x\n" +
				"20-21 ~b patch rec:west/ h=b e=2 rv=12",
			all(WriteBeforeTenure)},

		{"a claim after the seal", held + joined + "10-11 ~b patch lease:a sealed=b\n" + crash, nil},
		{"a claim before the seal",
			held + joined + "22-23 ~b patch lease:a sealed=b\n" + crash, all(ClaimBeforeSeal)},
		{"a claim without a seal", held + joined + crash, all(ClaimBeforeSeal)},
		{"a claim after a seal whose answer was lost",
			held + joined + "10-11 ~b patch lease:a sealed=b code=504\n" + crash, nil},
		{"… which wasn't committed, since the holder renews its Lease after the claim", held + joined +
			"10-11 ~b patch lease:a sealed=b code=504\n" + crash + "22-23 ~a patch lease:a", all(ClaimBeforeSeal)},
		{"… and the holder's next one may be from before the claim", held + joined +
			"10-11 ~b patch lease:a sealed=b code=504\n" + crash + "21-23 ~a patch lease:a", nil},
		{"… and the holder, which has ended, seals its Lease, too", held + joined +
			"10-11 ~b patch lease:a sealed=b code=504\n" + crash + "22-23 ~a patch lease:a sealed=a", nil},
		{"… after which somebody edits the Lease", held + joined +
			"10-11 ~b patch lease:a sealed=b code=504\n" + crash + "22-23 - patch lease:a", nil},
		{"a claim after a seal that the holder takes off", held + joined +
			"10-11 ~b patch lease:a sealed=b\n" + crash + "22-23 ~a patch lease:a", all(WriteAfterSeal)},
		{"a dead holder that is cleared",
			held + joined + "10-11 ~b patch lease:a sealed=b\n20-21 ~b patch rec:west/ e=1 rv=12", nil},
		{"a holder that is cleared without a seal", held + joined + "20-21 ~b patch rec:west/ e=1 rv=12",
			all(ClaimBeforeSeal)},
		{"a holder that releases its shard", held + joined + "20-21 ~a patch rec:west/ e=1 rv=12", nil},
		{"a claim after a release without an answer", held + joined + "9-10 ~a patch rec:west/ e=1 code=504 rv=0\n" +
			"20-21 ~b patch rec:west/ h=b e=2 rv=12 move=Planned", nil},
		{"… which wasn't committed, since the claim replaces the version before", held + joined +
			"9-10 ~a patch rec:west/ e=1 code=504 rv=0\n20-21 ~b patch rec:west/ h=b e=2 base=10 rv=12 move=Planned",
			all(ClaimBeforeSeal)},
		{"a holder that never had a Lease", "0-1 ~b create lease:b\n" + held, all(HolderWithoutLease)},
		{"… from which a shard is claimed", "0-1 ~b create lease:b\n" + held + crash, all(HolderWithoutLease)},
		{"a claim by an incarnation that never had a Lease",
			held + "0-1 ~a create lease:a\n10-11 ~b patch lease:a sealed=b\n" + crash, all(HolderWithoutLease)},
		{"a holder whose Lease was made later", held + "2-3 ~a create lease:a", all(HolderWithoutLease)},
		{"… whose missing Lease was sealed later", held + "2-3 ~b create lease:a sealed=b", all(HolderWithoutLease)},
		{"… whose Lease was made meanwhile", held + "1-2 ~a create lease:a", nil},
		{"… whose Lease may have been made", held + "0-1 ~a create lease:a code=504\n2-3 ~a patch lease:a", nil},
		{"… whose Lease is older than the log", held + "2-3 ~a patch lease:a", nil},
		{"… that a record names when the log begins", "0-1 ~a patch rec:west/ h=a e=1 to=b rv=10\n1-2 ~a patch lease:a\n" +
			"2-3 ~a patch rec:west/ h=b e=2 to=b rv=11", nil},
		{"a holder that hands off needs no seal",
			held + joined + "20-21 ~a patch rec:west/ h=b e=2 rv=12", nil},
		{"two changes in a row that got no answer",
			held + chain + "14-15 ~c patch lease:b sealed=c\n" + shown, nil},
		{"two changes in a row that got no answer, the second a claim without a seal",
			held + chain + shown, all(ClaimBeforeSeal)},
		{"a record made anew gives nothing yet", held +
			"7-8 ~a create rec:west/ rv=12\n9-10 ~b patch rec:west/ h=b e=5 rv=13", nil},
		{"a record made anew gives a lower epoch",
			"0-1 ~a create rec:west/ h=a e=7 rv=10 move=Join\n7-8 ~a create rec:west/ rv=12\n9-10 ~b patch rec:west/ h=b e=5 " +
				"rv=13", all(RecordEpochFell)},
		{"nor one whose answer was lost",
			held + joined + "9-10 ~a patch rec:west/ h=b e=2 move=Planned code=504 rv=0\n" +
				"20-21 ~b patch rec:west/ h=b e=2 move=Planned n=1 rv=12", nil},
		{"a claim after a handoff that was lost",
			held + joined + "9-10 ~a patch rec:west/ h=b e=2 move=Planned code=504 rv=0\n" +
				"20-21 ~b patch rec:west/ h=b e=2 move=Crash rv=12", all(ClaimBeforeSeal)},
		{"a write in flight when the Lease was sealed",
			held + joined + "10-20 ~b patch lease:a sealed=b\n15-25 west/@1:a patch web:x", nil},
		{"a write after the seal",
			held + joined + "10-20 ~b patch lease:a sealed=b\n21-25 west/@1:a patch web:x", all(WriteAfterSeal)},
		{"a renewal after the seal, which takes the seal away",
			joined + "10-20 ~b patch lease:a sealed=b\n21-25 ~a update lease:a", all(WriteAfterSeal)},
		{"a renewal in flight when the Lease was sealed",
			joined + "10-20 ~b patch lease:a sealed=b\n15-25 ~a update lease:a", nil},
		{"a renewal that was refused after the seal",
			joined + "10-20 ~b patch lease:a sealed=b\n21-25 ~a update lease:a code=409", nil},
		{"a Lease that its owner seals and deletes",
			joined + "9-10 ~a update lease:a\n12-20 ~a patch lease:a sealed=a\n21-25 ~a delete lease:a", nil},
		{"a sealed Lease that somebody else edits, and deletes", joined +
			"10-20 ~b patch lease:a sealed=b\n21-25 - patch lease:a sealed=b\n26-27 ~b delete lease:a", nil},
		{"a write after a seal that may not have been committed",
			held + joined + "10-20 ~b patch lease:a sealed=b code=504\n21-25 west/@1:a patch web:x", nil},
		{"a write after a clean exit",
			held + joined + "10-20 ~a delete lease:a\n21-25 west/@1:a patch web:x", all(WriteAfterSeal)},
		{"a write after somebody else deleted the Lease",
			held + joined + "10-20 - delete lease:a\n21-25 west/@1:a patch web:x", nil},

		{"west/0 beside west/000",
			"0-1 ~a create rec:west/0 h=a e=1 rv=10\n5-6 ~b create rec:west/000 h=b e=2 rv=11", all(OverlappingRecords)},
		{"west/0 beside west/1", "0-1 ~a create rec:west/0 h=a e=1 rv=10\n5-6 ~b create rec:west/1 h=b e=1 rv=11", nil},
		{"west/000 after west/0 was released",
			"0-1 ~a create rec:west/0 h=a e=1 rv=10\n3-4 ~a patch rec:west/0 e=1 rv=11\n" +
				"5-6 ~b create rec:west/000 h=b e=2 rv=12", nil},
		{"west/000 after a release of west/0 that got no answer",
			"0-1 ~a create rec:west/0 h=a e=1 rv=10\n3-4 ~a patch rec:west/0 e=1 rv=0 code=504\n" +
				"5-6 ~b create rec:west/000 h=b e=2 rv=12", nil},
		{"… which a later line shows",
			"0-1 ~a create rec:west/0 h=a e=1 rv=10\n3-4 ~a patch rec:west/0 e=1 rv=0 code=504\n" +
				"5-6 ~b create rec:west/000 h=b e=2 rv=12\n8-9 ~c patch rec:west/0 e=1 n=1 rv=13", nil},
		{"… which a later line refutes",
			"0-1 ~a create rec:west/0 h=a e=1 rv=10\n3-4 ~a patch rec:west/0 e=1 rv=0 code=504\n" +
				"5-6 ~b create rec:west/000 h=b e=2 rv=12\n8-9 ~a patch rec:west/0 h=a e=1 n=1 rv=13",
			all(OverlappingRecords)},
		{"west/000 after a request about west/0 that got no answer and isn't shown",
			"0-1 ~a create rec:west/0 h=a e=1 rv=10\n3-4 ~a patch rec:west/0 nobody code=504\n" +
				"5-6 ~b create rec:west/000 h=b e=2 rv=12", nil},
		{"west/000 after a plan and a report of west/0 that got no answer",
			"0-1 ~a create rec:west/0 h=a e=1 rv=10\n2-3 ~c patch rec:west/0 to=b rv=0 code=504\n" +
				"3-4 ~a patch rec:west/0 h=a e=1 n=1 rv=0 code=504\n5-6 ~b create rec:west/000 h=b e=2 rv=12",
			all(OverlappingRecords)},
		{"west/000 after the record west/0 was deleted",
			"0-1 ~a create rec:west/0 h=a e=1 rv=10\n5-6 ~b create rec:west/000 h=b e=2 rv=12\n" +
				"9-9 - patch rec:west/0 nobody code=409\n" +
				"2-3 - patch rec:west/0 e=1 rv=11", nil},
		{"west/000 after west/0, and its epoch is no higher",
			"0-1 ~a create rec:west/0 h=a e=2 rv=10\n3-4 ~a patch rec:west/0 e=2 rv=11\n" +
				"5-6 ~b create rec:west/000 h=b e=2 rv=12", all(RecordEpochFell)},
		{"west/0 beside the same cluster's occident/000",
			"0-1 ~a create rec:west/0 h=a e=1 rv=10\n5-6 ~b create rec:occident/000 h=b e=2 rv=11", all(OverlappingRecords)},
		{"occident/000 beside west/0, whose holder is sealed", joined + "2-3 ~b patch lease:a sealed=b\n" +
			"0-1 ~a create rec:west/0 h=a e=1 rv=10\n5-6 ~b create rec:occident/000 h=b e=2 rv=11", nil},
		{"occident/000 beside west/0, whose holder is sealed later", joined + "8-9 ~b patch lease:a sealed=b\n" +
			"0-1 ~a create rec:west/0 h=a e=1 rv=10\n5-6 ~b create rec:occident/000 h=b e=2 rv=11", all(OverlappingRecords)},
		{"occident/000 beside west/0, whose holder is sealed, and its epoch is no higher", joined +
			"2-3 ~b patch lease:a sealed=b\n0-1 ~a create rec:west/0 h=a e=2 rv=10\n" +
			"5-6 ~b create rec:occident/000 h=b e=2 rv=11", all(RecordEpochFell)},
		{"occident/000 after west/0 was released",
			"0-1 ~a create rec:west/0 h=a e=1 rv=10\n3-4 ~a patch rec:west/0 e=1 rv=11\n" +
				"5-6 ~b create rec:occident/000 h=b e=2 rv=12\n7-8 occident/000@2:b patch web:x", nil},
		{"a write under west after one under occident",
			"10-20 occident/@2:b patch web:x\n21-30 west/@1:a patch web:y", all(InterleavedShard)},
		{"a write under west after occident was given to another", held + "3-4 ~b create rec:occident/ h=b e=2 rv=11\n" +
			"5-6 west/@1:a patch web:y", all(OverlappingRecords, WriteAfterHandoff)},
		{"an At of a shard under the cluster's other name",
			"1-2 " + strings.Replace(mine, "west", "occident", 1) + " update at:a uid=u1", nil},
		{"a source of another shard under the cluster's other name",
			"1-2 " + strings.Replace(others, "west", "occident", 1) + " patch web:x uid=u1", all(WrongShard)},

		{"a move of four writes",
			held + "2-3 ~c patch rec:west/ h=a e=1 to=b rv=11\n4-5 ~b patch rec:west/ h=a e=1 to=b w=b rv=12\n" +
				"6-7 ~a patch rec:west/ h=a e=1 to=b w=b n=1 rv=13\n8-9 ~a patch rec:west/ h=b e=2 to=b n=1 rv=14", nil},
		{"a move of five, two of them reports",
			held + "2-3 ~c patch rec:west/ h=a e=1 to=b rv=11\n4-5 ~b patch rec:west/ h=a e=1 to=b w=b rv=12\n" +
				"5-6 ~a patch rec:west/ h=a e=1 to=b w=b n=2 rv=13\n6-7 ~a patch rec:west/ h=a e=1 to=b w=b n=1 rv=14\n" +
				"8-9 ~a patch rec:west/ h=b e=2 to=b n=1 rv=15", all(CostlyMove)},
		{"a handoff that is written four more times",
			held + "2-3 ~c patch rec:west/ h=a e=1 to=b rv=11\n4-5 ~b patch rec:west/ h=a e=1 to=b w=b rv=12\n" +
				"8-9 ~a patch rec:west/ h=b e=2 to=b rv=14\n9-10 ~a patch rec:west/ h=b e=2 to=b rv=15\n" +
				"10-11 ~a patch rec:west/ h=b e=2 to=b rv=16\n11-12 ~a patch rec:west/ h=b e=2 to=b rv=17\n" +
				"12-13 ~a patch rec:west/ h=b e=2 to=b rv=18", all(CostlyMove)},
		{"a move of four, and a report without an answer that is taken back",
			held + "2-3 ~c patch rec:west/ h=a e=1 to=b rv=11\n4-5 ~b patch rec:west/ h=a e=1 to=b w=b rv=12\n" +
				"6-7 ~a patch rec:west/ h=a e=1 to=b w=b n=1 rv=13\n8-9 ~a patch rec:west/ h=b e=2 to=b n=1 rv=14\n" +
				"10-11 ~b patch rec:west/ h=b e=2 n=5 code=504 rv=0\n" +
				"12-13 ~b patch rec:west/ h=b e=2 to=b n=1 base=15 rv=16", nil},
		{"… which wasn't committed",
			held + "2-3 ~c patch rec:west/ h=a e=1 to=b rv=11\n4-5 ~b patch rec:west/ h=a e=1 to=b w=b rv=12\n" +
				"6-7 ~a patch rec:west/ h=a e=1 to=b w=b n=1 rv=13\n8-9 ~a patch rec:west/ h=b e=2 to=b n=1 rv=14\n" +
				"10-11 ~b patch rec:west/ h=b e=2 n=5 code=504 rv=0\n" +
				"12-13 ~b patch rec:west/ h=b e=2 to=b n=1 base=14 rv=16", all(CostlyMove)},
		{"needless writes before a handoff", held + "2-3 ~c patch rec:west/ h=a e=1 to=b rv=11\n" +
			"4-5 ~b patch rec:west/ h=a e=1 to=b rv=12\n5-6 ~b patch rec:west/ h=a e=1 to=b rv=13\n" +
			"6-7 ~b patch rec:west/ h=a e=1 to=b rv=14\n8-9 ~a patch rec:west/ h=b e=2 to=b rv=15", all(CostlyMove)},
		{"a user's pins before and after a handoff", held + "2-3 ~c patch rec:west/ h=a e=1 to=b rv=11\n" +
			"4-5 tenure/v1 patch rec:west/ h=a e=1 to=b rv=12\n5-6 - patch rec:west/ h=a e=1 to=b rv=13\n" +
			"6-7 - patch rec:west/ h=a e=1 to=b rv=14\n8-9 ~a patch rec:west/ h=b e=2 to=b rv=15\n" +
			"9-10 - patch rec:west/ h=b e=2 to=b rv=16", nil},
		{"a shard that is released and retired after a move of four writes", held +
			"2-3 ~c patch rec:west/ h=a e=1 to=b rv=11\n4-5 ~b patch rec:west/ h=a e=1 to=b w=b rv=12\n" +
			"6-7 ~a patch rec:west/ e=1 to=b n=1 rv=13\n7-8 ~c patch rec:west/ e=1 to=b n=1 rv=14\n" +
			"8-9 ~b patch rec:west/ h=b e=2 to=b n=1 rv=15", nil},
		{"a plan that is called off and one that isn't are two moves of four at most", held +
			"2-3 ~c patch rec:west/ h=a e=1 to=b rv=11\n4-5 ~b patch rec:west/ h=a e=1 to=b w=b rv=12\n" +
			"5-6 ~c patch rec:west/ h=a e=1 to=a w=b rv=13\n6-7 ~a patch rec:west/ h=a e=1 to=a rv=14\n" +
			"7-8 ~c patch rec:west/ h=a e=1 to=b rv=15\n8-9 ~b patch rec:west/ h=a e=1 to=b w=b rv=16\n" +
			"9-10 ~a patch rec:west/ h=b e=2 to=b rv=17", nil},
		{"released to one that left at the same time, and planned for another", held + released +
			"8-9 ~b delete lease:b\n10-11 ~c patch rec:west/ e=1 to=c rv=14\n12-13 ~c patch rec:west/ h=c e=2 to=c rv=15", nil},
		{"… and claimed by another", held + released +
			"8-9 ~b delete lease:b\n10-11 ~c patch rec:west/ h=c e=2 to=b rv=14\n12-13 ~c patch rec:west/ h=c e=2 to=c rv=15",
			nil},
		{"released to one that says that it can't serve the cluster, and planned for another", held + released +
			"8-9 ~b patch lease:b unfit=east,west+\n10-11 ~c patch rec:west/ e=1 to=c rv=14\n" +
			"12-13 ~c patch rec:west/ h=c e=2 to=c rv=15", nil},
		{"… that it only keeps what it has of that one", held + released +
			"8-9 ~b patch lease:b unfit=!east,we%73t+\n10-11 ~c patch rec:west/ e=1 to=c rv=14\n" +
			"12-13 ~c patch rec:west/ h=c e=2 to=c rv=15", nil},
		{"… that it can serve that one alone", held + released +
			"8-9 ~b patch lease:b unfit=!west\n10-11 ~c patch rec:west/ e=1 to=c rv=14\n" +
			"12-13 ~c patch rec:west/ h=c e=2 to=c rv=15", all(CostlyMove)},
		{"… that it couldn't before it was chosen", held + "0-1 ~b patch lease:b unfit=west\n" + released +
			"10-11 ~c patch rec:west/ e=1 to=c rv=14\n12-13 ~c patch rec:west/ h=c e=2 to=c rv=15", all(CostlyMove)},
		{"released to one that stays, and claimed by another", held + released +
			"10-11 ~c patch rec:west/ h=c e=2 to=b rv=14\n12-13 ~c patch rec:west/ h=c e=2 to=c rv=15", all(CostlyMove)},
		{"released to one that stays, and planned for another", held + released +
			"10-11 ~c patch rec:west/ e=1 to=c rv=14\n12-13 ~c patch rec:west/ h=c e=2 to=c rv=15\n14-15 ~b delete lease:b",
			all(CostlyMove)},
	}
	facts := Facts{Names: map[string]string{"occident": "west"}}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.want == nil {
				tt.want = map[Kind]int{}
			}
			events := parse(t, tt.log)
			for name, events := range map[string][]Event{"in order": events, "backwards": backwards(events)} {
				expect.Equal(t, name, tt.want, broken(Judge(slices.Values(events), facts, few)))
			}
		})
	}
}

func backwards(events []Event) []Event {
	events = slices.Clone(events)
	slices.Reverse(events)
	return events
}

// whole is a log in which nothing is missing.
const whole = `
	0-1 ~a create lease:a rv=1
	0-1 ~a create rec:west/ h=a e=1 rv=2
	2-3 - create at:a due=0 uid=u1 rv=3
	4-5 west/@1:a create pod:a-pod owner=u1 user=system:serviceaccount:t:fleet
	6-7 west/@1:a update at:a due=0 uid=u1 phase=DONE by=a-pod base=3 rv=4
`

func TestWhatTheLogShouldHoldAndDoesNotIsAViolation(t *testing.T) {
	without := func(what string) func(string) string {
		return func(log string) string {
			return strings.Join(slices.DeleteFunc(strings.SplitAfter(log, "\n"),
				func(line string) bool { return strings.Contains(line, what) }), "")
		}
	}
	with := func(line string) func(string) string { return func(log string) string { return log + line } }
	swap := func(old, new string) func(string) string {
		return func(log string) string { return strings.Replace(log, old, new, 1) }
	}
	tests := []struct {
		name  string
		edit  func(string) string
		rules Rules
		want  map[Kind]int
	}{
		{"the control, which lacks nothing", with(""), Rules{}, map[Kind]int{}},
		{"no writes", without("@1:a"), Rules{Settle: time.Minute}, map[Kind]int{NoWrites: 1}},
		{"no Ats",
			func(string) string { return without("at:")(without("pod:")(whole)) + "6-7 west/@1:a patch web:x" }, Rules{},
			map[Kind]int{NoAts: 1}},
		{"no Pods", without("pod:"), Rules{}, map[Kind]int{NoPods: 1}},
		{"an At that ended without one", func(string) string {
			return strings.Replace(without("pod:")(whole), "by=a-pod", "missed=1", 1)
		}, Rules{}, map[Kind]int{}},
		{"no records", without("rec:"), Rules{}, map[Kind]int{NoRecords: 1}},
		{"no Leases", without("lease:"), Rules{}, map[Kind]int{NoLeases: 1}},
		{"nothing to be judged, by declaration",
			func(string) string { return "0-1 - create map:x" }, Rules{Unwitnessed: "it runs nothing"}, map[Kind]int{}},
		{"a violation in a run that is to be judged by nothing",
			with("8-9 west/@3:a patch web:x"), Rules{Unwitnessed: "it runs nothing"}, map[Kind]int{WriteWithoutGrant: 1}},
		{"a write of ours that names no shard", with("8-9 tenure/v1 patch web:x"), Rules{}, map[Kind]int{Unattributed: 1}},
		{"a write by the fleet's user under another name",
			with("8-9 kubectl patch map:x user=fleet"), Rules{Users: []string{"fleet"}}, map[Kind]int{Unattributed: 1}},
		{"a write by a user that is known from its other writes",
			with("8-9 kubectl patch map:x user=system:serviceaccount:t:fleet"), Rules{}, map[Kind]int{Unattributed: 1}},
		{"a write by another user",
			with("8-9 kubectl patch map:x user=system:serviceaccount:t:other"), Rules{Users: []string{"fleet"}}, map[Kind]int{}},
		{"a coordination write without a name",
			with("8-9 tenure/v1 create lease:b rv=8"), Rules{}, map[Kind]int{Unattributed: 1}},
		{"a Pod of no At", with("8-9 west/@1:a create pod:b-pod"), Rules{}, map[Kind]int{PodWithoutAt: 1}},
		{"a record without its body", with("8-9 ~a patch rec:west/ nobody"), Rules{}, map[Kind]int{Bodiless: 1}},
		{"an At without its body",
			swap("create at:a due=0 uid=u1 rv=3", "create at:a nobody"), Rules{}, map[Kind]int{Bodiless: 1}},
		{"a Pod without its body", swap("owner=u1", "nobody"), Rules{}, map[Kind]int{Bodiless: 1}},
		{"a Lease without its body", with("8-9 ~a update lease:a nobody"), Rules{}, map[Kind]int{Bodiless: 1}},
		{"a copy without its body", with("8-9 west/@1:a patch web:x nobody"), Rules{}, map[Kind]int{Bodiless: 1}},
		{"a line that is missing",
			with("8-9 - update at:a due=0 uid=u1 phase=DONE base=7 rv=8"), Rules{}, map[Kind]int{MissingLine: 1}},
		{"a write to what is older than the log",
			with("8-9 - update at:b due=99 uid=u2 base=2 rv=8"), Rules{}, map[Kind]int{}},
		{"a line that is missing, after one of unknown outcome",
			with("8-9 - update at:a base=4 code=504 nobody\n10-11 - update at:a due=0 uid=u1 phase=DONE base=7 rv=8"),
			Rules{}, map[Kind]int{}},
		{"two lines that are missing, after one of unknown outcome",
			with("8-9 - update at:a base=4 code=504 nobody\n10-11 - update at:a due=0 uid=u1 phase=RUNNING base=7 rv=8\n" +
				"12-13 - update at:a due=0 uid=u1 phase=DONE base=10 rv=11"), Rules{}, map[Kind]int{MissingLine: 1}},
		{"a line that is missing, after one of unknown outcome, and two writes replace its version",
			with("8-9 - update at:a base=4 code=504 nobody\n10-11 - update at:a due=0 uid=u1 phase=DONE base=7 rv=8\n" +
				"12-13 - update at:a base=7 code=504 nobody"), Rules{}, map[Kind]int{}},
		{"two lines that are missing, after two of unknown outcome",
			with("8-9 - update at:a base=4 code=504 nobody\n8-9 - update at:a base=4 code=504 nobody\n" +
				"10-11 - update at:a due=0 uid=u1 phase=RUNNING base=7 rv=8\n" +
				"12-13 - update at:a due=0 uid=u1 phase=DONE base=10 rv=11"), Rules{}, map[Kind]int{}},
		{"a line that is missing where an API server ended",
			with("0-1 s create api:apiserver-x server=1\n7-8 s update api:apiserver-x server=2\n" +
				"8-9 - update at:a due=0 uid=u1 phase=DONE base=7 rv=8"), Rules{}, map[Kind]int{}},
		{"a line that is missing long before an API server ended",
			with("9-10 - create at:b due=100000 uid=u2 rv=8\n33000-33001 - update at:a due=0 uid=u1 phase=DONE base=7 rv=11\n" +
				"0-1 s create api:apiserver-x server=1\n30000-30001 s update api:apiserver-x server=1\n" +
				"32000-32001 s update api:apiserver-x server=2"), Rules{}, map[Kind]int{MissingLine: 1}},
		{"a line that is missing after an API server had begun",
			with("0-1 s create api:apiserver-x server=1\n7-8 s update api:apiserver-x server=2\n" +
				"9-10 - create at:b due=99 uid=u2 rv=8\n" +
				"12-13 - update at:a due=0 uid=u1 phase=DONE base=9 rv=11"), Rules{}, map[Kind]int{MissingLine: 1}},
		{"a Lease that somebody edits",
			with("8-9 - patch lease:a base=1 rv=8\n10-11 ~a patch lease:a base=8 rv=10"), Rules{}, map[Kind]int{}},
		{"an edited Lease, and no line of who did it",
			with("10-11 ~a patch lease:a base=8 rv=10"), Rules{}, map[Kind]int{MissingLine: 1}},
		{"a Lease of another program, and a line that is missing",
			with("8-9 - patch api:scheduler base=5 rv=7\n10-11 - patch api:scheduler base=8 rv=10"), Rules{}, map[Kind]int{}},
		{"nothing for two minutes in one log, and nothing at the end of the other",
			with("120000-120001 - create map:x"), Rules{}, map[Kind]int{MissingFile: 2}},
		{"nothing in the first four minutes of the other log",
			with("-240000--239999 - create map:x"), Rules{}, map[Kind]int{MissingFile: 2}},
		{"an API server that starts two minutes later", // while the machine is busy; the other log has a hole
			with("-120000--119999 - create map:x"), Rules{}, map[Kind]int{MissingFile: 1}},
		{"nothing for half a minute", with("30000-30001 - create map:x"), Rules{}, map[Kind]int{}},
		{"nothing for most of a minute, and both logs go on", // a restart takes as long
			with("50000-50001 - create map:x\n50000-50001 - create lease:x"), Rules{}, map[Kind]int{}},
		{"nothing in the last forty seconds of one log",
			with("50000-50001 - create lease:x"), Rules{}, map[Kind]int{MissingFile: 1}},
		{"nothing in the last twenty seconds of one log, in which one renewal is late",
			with("30000-30001 - create lease:x"), Rules{}, map[Kind]int{}},
		{"a due time that isn't told", swap("create at:a due=0", "create at:a"), Rules{}, map[Kind]int{}},
		{"due times that nobody tells",
			func(log string) string { return strings.ReplaceAll(log, "due=0", "") }, Rules{}, map[Kind]int{UnknownAt: 1}},
		{"the same, waived", func(log string) string { return strings.ReplaceAll(log, "due=0", "") },
			Rules{Waived: map[Kind]string{UnknownAt: "nobody asks"}}, map[Kind]int{}},
		{"versions that fall", with("8-9 ~a patch rec:west/ h=a e=1 rv=1"), Rules{}, map[Kind]int{UndeclaredRestore: 1}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := Judge(slices.Values(parse(t, tt.edit(whole))), Facts{}, tt.rules)
			if diff := gocmp.Diff(tt.want, broken(r)); diff != "" {
				t.Errorf("(-want +got):\n%s\n%v", diff, r.Err())
			}
			if (r.Err() == nil) != (len(tt.want) == 0) {
				t.Errorf("error: %v", r.Err())
			}
		})
	}
	for _, rules := range []Rules{{Skew: -1}, {Waived: map[Kind]string{FallingEpoch: "why not"}},
		{Waived: map[Kind]string{NoAts: ""}}} {
		if rules.Validate() == nil {
			t.Errorf("accepted: %+v", rules)
		}
	}
}

func TestTheFirstLineOfAnObjectIsMissed(t *testing.T) {
	const restarted = "0-1 s create api:apiserver-x server=1\n%d-%d s update api:apiserver-x server=1\n" +
		"40000-40001 s update api:apiserver-x server=2\n"
	cut := func(what string) string { return strings.Replace(whole, what, "", 1) }
	const at, record = "2-3 - create at:a due=0 uid=u1 rv=3\n", "0-1 ~a create rec:west/ h=a e=1 rv=2\n"
	for _, c := range []struct {
		name, log string
		whole     bool
		want      int
	}{
		{"nothing is missing", whole, true, 0},
		{"an At's", cut(at), true, 1},
		{"an At's, in logs that may begin later", cut(at), false, 0},
		{"an At's whose creation is of unknown outcome", strings.Replace(whole, "uid=u1 rv=3", "code=504 nobody", 1),
			true, 0},
		{"an At's that is created by apply", strings.Replace(whole, "create at:a", "patch at:a code=201", 1), true, 0},
		{"a record's", cut(record) + "8-9 ~a update rec:west/ h=a e=1 rv=8\n", true, 1},
		{"a Lease's", cut("0-1 ~a create lease:a rv=1\n") + "8-9 ~a update lease:a rv=8\n", true, 1},
		{"another program's Lease's", whole + "8-9 - update lease:b rv=8\n", true, 0},
		{"an At's, and the API server ended then", cut(at) + fmt.Sprintf(restarted, 10, 11), true, 0},
		{"an At's, and the API server ended long after", cut(at) + fmt.Sprintf(restarted, 30000, 30001), true, 1},
	} {
		r := Judge(slices.Values(parse(t, c.log)), Facts{Whole: c.whole}, Rules{})
		if got := r.Counts[MissingLine]; got != c.want {
			t.Errorf("%s: %d missing lines, want %d: %v", c.name, got, c.want, r.Err())
		}
	}
	after := Facts{Whole: true, Restores: []Restore{{"west", instant(ms(0))}}}
	if r := Judge(slices.Values(parse(t, cut(at))), after, Rules{}); r.Counts[MissingLine] > 0 {
		t.Errorf("of an At that a backup had: %v", r.Err())
	}
}

func TestTheLastLineOfAnObjectIsMissed(t *testing.T) {
	at := func(rv uint64) Facts {
		return Facts{Versions: []Version{{"west", audit.AtGroup, "ats", "ns", "a", rv}}}
	}
	const more = "8-9 - update at:a due=0 uid=u1 phase=DONE base=4 rv=8\n"
	for _, c := range []struct {
		name  string
		log   string
		facts Facts
		want  int
	}{
		{"told", whole + more, at(8), 0},
		{"not told", whole, at(8), 1},
		{"not told, but a write of unknown outcome is", whole + "8-9 - update at:a base=4 code=504 nobody\n", at(8), 0},
		{"older than the log", whole, at(1), 0},
		{"nobody says", whole, Facts{}, 0},
	} {
		if r := Judge(slices.Values(parse(t, c.log)), c.facts, Rules{}); r.Counts[MissingLine] != c.want {
			t.Errorf("%s: %d missing lines, want %d: %v", c.name, r.Counts[MissingLine], c.want, r.Err())
		}
	}
}

func TestARestoreIsAnotherHistory(t *testing.T) {
	log := whole + `
		10-11 ~a patch rec:west/ h=a e=5 rv=20
		50-51 ~b patch rec:west/ h=a e=1 to=b rv=3
		54-55 ~b patch lease:a sealed=b rv=4
		56-57 ~b patch rec:west/ h=b e=%d to=b rv=5
		58-59 west/@%d:b create pod:a-pod owner=u1
		60-61 west/@%d:b update at:a due=0 uid=u1 phase=DONE base=3 rv=4
		%s`
	restores := []Restore{{"home", instant(ms(40))}, {"west", instant(ms(40))}}
	tests := []struct {
		name     string
		epoch    int
		more     string
		restores []Restore
		want     []Kind
	}{
		{"a right one, which is declared, and its epochs go on from above", 70, "", restores, nil},
		{"one that isn't declared", 70, "", nil, []Kind{UndeclaredRestore, RecordEpochFell, DuplicatePod, PodAfterDone}},
		{"a wrong one, whose epochs begin anew", 2, "", restores, []Kind{WriteAfterHandoff}},
		{"the holder of before goes on until others are given the shard", 70, "52-53 west/@5:a patch web:x", restores, nil},
		{"the holder of before goes on for longer", 70, "62-63 west/@5:a patch web:x", restores,
			[]Kind{WriteAfterHandoff, InterleavedShard}},
		{"the restored record's holder acts on it", 70, "52-53 west/@1:a patch web:x", restores, []Kind{WriteAfterHandoff}},
		{"another is given the restored epoch", 70, "62-63 west/@70:c patch web:x", restores, []Kind{TwoHolders}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			events := parse(t, fmt.Sprintf(log, tt.epoch, tt.epoch, tt.epoch, tt.more))
			r := Judge(slices.Values(events), Facts{Restores: tt.restores}, Rules{})
			for _, k := range tt.want {
				if r.Counts[k] == 0 {
					t.Errorf("want %s, got %v", k, broken(r))
				}
			}
			if len(tt.want) == 0 && !r.OK {
				t.Error(r.Err())
			}
		})
	}
}

// The first write to a record after a restore is judged by the version that it replaces.
func TestTheFirstWriteAfterARestoreIsJudged(t *testing.T) {
	const seal = "50-51 ~b patch lease:a sealed=b rv=4\n"
	const claim = "56-57 ~b patch rec:west/ h=b e=70 base=2 rv=5 move=Crash\n"
	lease := func(name string) string { return fmt.Sprintf("0-1 ~%[1]s create lease:%[1]s rv=1\n", name) }
	log := lease("a") + "0-1 ~a create rec:west/ h=a e=1 rv=2\n" +
		"20-21 ~a patch rec:west/ h=c e=2 base=2 rv=3 move=Planned\n" +
		"22-23 west/@2:c patch web:x\n" + lease("c")
	for name, c := range map[string]struct {
		more string
		want []Kind
	}{
		"a claim after the seal": {lease("b") + seal + claim + "58-59 west/@70:b patch web:x\n", nil},
		"a claim without a seal": {lease("b") + claim, []Kind{ClaimBeforeSeal}},
		"a claim whose seal is lost": {
			lease("b") + "30-31 ~b patch lease:a sealed=b rv=9\n" + claim, []Kind{ClaimBeforeSeal}},
		"a claim whose seal may be in the backup": {
			lease("b") + "20-21 ~b patch lease:a sealed=b rv=2\n" + claim, nil},
		"by one without a Lease":   {seal + claim, []Kind{HolderWithoutLease}},
		"a handoff by the holder":  {lease("b") + strings.Replace(claim, "~b", "~a", 1), nil},
		"an epoch that falls":      {lease("b") + seal + strings.Replace(claim, "70", "0", 1), []Kind{RecordEpochFell}},
		"an epoch of its holder's": {lease("b") + seal + strings.Replace(claim, "70", "1", 1), []Kind{TwoHolders}},
		"a write of the old holder's after it": {
			lease("b") + seal + claim + "58-59 west/@2:c patch web:x\n", []Kind{WriteAfterHandoff}},
		"a third replica's write under its epoch": {
			lease("b") + seal + claim + "58-59 west/@70:d patch web:x\n", []Kind{TwoHolders}},
		"a claim that the lost history has as a handoff without an answer": {
			lease("b") + "30-31 ~a patch rec:west/ h=b e=70 move=Crash code=504\n" + claim, []Kind{ClaimBeforeSeal}},
		"a claim of what no line shows": {lease("b") + strings.Replace(claim, "base=2", "base=7", 1), nil},
		"a claim of what a request without an answer may have made": {
			lease("b") + "52-53 ~a patch rec:west/ h=d e=2 base=2 code=504\n" + claim, nil},
		"a claim of what two lost histories made": {
			lease("b") + "42-43 ~a patch rec:west/ h=a e=1 to=b rv=2\n" + claim, nil},
		"a holder that renews a Lease whose seal is lost": {
			"30-31 ~b patch lease:c sealed=b code=504\n32-33 ~b patch rec:west/ h=b e=3 base=3 rv=6 move=Crash\n" +
				"52-53 ~c patch lease:c\n" + lease("b") + seal + claim, nil},
		"a write under an epoch whose release is lost": {"30-31 ~c patch rec:west/ e=2 base=3 rv=6\n" +
			"52-53 west/@2:c patch web:x\n", nil},
		"a record that overlaps the holder's": {lease("b") + "52-53 ~b create rec:west/00 h=b e=70 rv=4\n" +
			"56-57 ~a patch rec:west/ h=a e=1 n=1 base=2 rv=5\n", []Kind{OverlappingRecords}},
		"one that overlaps what the holder may have released": {lease("b") +
			"50-51 ~a patch rec:west/ h=a e=1 n=1 base=2 rv=4\n52-53 ~a patch rec:west/ e=1 base=4 code=504\n" +
			"54-55 ~b create rec:west/00 h=b e=70 rv=6\n", nil},
		"one that overlaps what the holder has released": {lease("b") + "52-53 ~a patch rec:west/ e=1 base=2 rv=4\n" +
			"54-55 ~b create rec:west/00 h=b e=70 rv=5\n", nil},
		"one that overlaps what the lost history had released": {lease("b") +
			"24-25 ~c patch rec:west/ e=2 rv=4\n26-27 ~b create rec:west/00 h=b e=3 rv=5\n" + seal + claim, nil},
	} {
		restores := []Restore{{"home", instant(ms(40))}}
		if strings.Contains(name, "two lost") {
			restores = append(restores, Restore{"home", instant(ms(45))})
		}
		events := parse(t, log+c.more)
		for order, events := range map[string][]Event{"in order": events, "backwards": backwards(events)} {
			want := map[Kind]int{}
			for _, k := range c.want {
				want[k] = 1
			}
			expect.Equal(t, name+", "+order, want, broken(Judge(slices.Values(events), Facts{Restores: restores}, few)))
		}
	}
}

func TestAWriteThatChangesNothingTellsOfAVersionFromBeforeTheBackup(t *testing.T) {
	const log = whole + `
		10-11 ~a patch lease:a base=1 rv=15
		12-13 ~a patch lease:a base=15 rv=25
		45-46 s create api:apiserver-h in=home server=2 rv=17
		50-51 - patch rec:west/ h=a e=1 rv=2
		52-53 ~a patch lease:a base=15 rv=18
	`
	restores := Facts{Restores: []Restore{{"home", instant(ms(40))}}}
	for _, c := range []struct {
		name, more string
		want       int
	}{
		{"nothing is missing", "54-55 ~a patch lease:a base=18 rv=20", 0},
		{"the line of version 19 is", "54-55 ~a patch lease:a base=19 rv=20", 1},
		{"a request to a version of before, without an answer", "54-55 ~a patch lease:a base=25 code=504 nobody", 0},
		{"one that was carried out", "54-55 ~a patch lease:a base=25 rv=27", 1},
		{"one without an answer to what no line shows", "54-55 ~a patch lease:a base=26 code=504 nobody", 1},
	} {
		events := parse(t, log+c.more)
		for order, events := range map[string][]Event{"in order": events, "backwards": backwards(events)} {
			if r := Judge(slices.Values(events), restores, Rules{}); r.Counts[MissingLine] != c.want {
				t.Errorf("%s, %s: %d missing lines, want %d: %v", c.name, order, r.Counts[MissingLine], c.want, r.Err())
			}
		}
	}
}

func TestConcurrentAndFencedWritesAreCounted(t *testing.T) {
	r := Judge(slices.Values(parse(t, `
		10-20 west/@2:b update at:a
		15-30 west/@1:a update at:a
		40-41 west/@1:a update at:a code=422 message=epoch
		5-6 west/@1:a update at:a code=409
		50-51 west/@2:b create pod:a-pod code=409`)), Facts{}, few)
	expect.Equal(t, "fenced", Fenced{Conflict: 1, AlreadyExists: 1, EpochRule: 1}, r.Fenced)
	if r.Writes.ConcurrentKeys != 1 || r.Writes.ConcurrentShards != 1 || !r.OK {
		t.Errorf("want one concurrent write and no violation, got %+v, %v", r.Writes, broken(r))
	}
}

func TestAnAtIsServedOnceItsPodIsMade(t *testing.T) {
	mine, serve := shardOf("u1")+"@1:a", "%d-%d "+shardOf("u1")+"@1:a create pod:a-pod owner=u1%s\n"
	begun := "1-2 - create at:a due=10 uid=u1\n11-12 " + mine + " update at:a uid=u1 due=10 phase=RUNNING\n"
	done := "40-41 " + mine + " update at:a uid=u1 due=10 phase=DONE by=a-pod%s\n"
	for _, c := range []struct {
		name, log string
		want      int64 // when it was served
		late      float64
		pods      int
	}{
		{"begun alone", begun, 0, 0, 0},
		{"a Pod", begun + fmt.Sprintf(serve, 20, 25, "") + fmt.Sprintf(done, ""), 25, 15, 1},
		{"a refused Pod, and another", begun + fmt.Sprintf(serve, 15, 16, " code=409") + fmt.Sprintf(serve, 20, 25, ""),
			25, 15, 1},
		{"a Pod that was made again", begun + fmt.Sprintf(serve, 20, 25, "") + "26-27 - delete pod:a-pod\n" +
			fmt.Sprintf(serve, 30, 35, ""), 25, 15, 2},
		{"a Pod whose answer isn't known", begun + fmt.Sprintf(serve, 20, 25, " code=504"), 0, 0, 0},
		{"a Pod that only DONE tells of", begun + fmt.Sprintf(serve, 20, 25, " code=504") + fmt.Sprintf(done, ""), 41, 31,
			1},
		{"a Pod of somebody else's", begun + "20-25 - create pod:a-pod owner=u1\n", 0, 0, 0},
		{"no Pod, because its deadline had passed", begun + fmt.Sprintf(done, " missed=1"), 0, 0, 0},
		{"a Pod before its time", begun + fmt.Sprintf(serve, 5, 6, ""), 6, 0, 1},
		{"an At that was created when it was due", "18-19 - create at:a due=10 uid=u1\n" + fmt.Sprintf(serve, 20, 25, ""),
			25, 7, 1},
	} {
		r := Judge(slices.Values(parse(t, c.log)), Facts{}, few)
		var want []Served
		if c.want > 0 {
			want = []Served{{"west", "ns", "a", shardOf("u1"), instant(ms(c.want))}}
		}
		expect.Equal(t, c.name+": served", want, r.Served)
		expect.Equal(t, c.name+": lateness", c.late, r.Ats.Lateness.Max)
		expect.Equal(t, c.name+": Pods", c.pods, r.Ats.Pods)
	}
}

func TestWhatTheLogDoesNotTellIsUnknownNotZero(t *testing.T) {
	events := parse(t, "0-1 - create at:a\n5-9 west/@1:a patch web:x")
	known := Facts{Ats: []At{{Cluster: "west", Namespace: "ns", Name: "a", Schedule: stamp(ms(4))}}}
	strict := Rules{Waived: few.Waived, Settle: time.Second}
	tests := []struct {
		name  string
		facts Facts
		rules Rules
		want  Kind
	}{
		{"unknown",
			Facts{}, Rules{}, UnknownAt}, {"with a list of Ats", known, few, LostAt}, {"within the time to settle", known,
			strict, ""},
	}
	for _, tt := range tests {
		if r := Judge(slices.Values(events), tt.facts,
			tt.rules); tt.want != "" && r.Counts[tt.want] != 1 || tt.want == "" && (!r.OK || r.Ats.Settling != 1) {
			t.Errorf("%s: want one %q, got %v, %+v", tt.name, tt.want, broken(r), r.Ats)
		}
	}
}

func TestMovesAreNamedCountedAndTimed(t *testing.T) {
	m := newModel(1)
	east := m.shards[2]
	for _, kind := range []protocol.MoveKind{protocol.Planned, protocol.Crash, protocol.Exit} {
		m.grant(east, kind)
	}
	got := judged(m).Moves
	want := MoveStats{
		Planned: 1, Crash: 1, Exit: 1, Join: 3, Writes: 7, PerMove: 7.0 / 3, MaxWrites: 3,
		Steps: map[Step]int{StepPlan: 5, StepWarm: 5, StepHandoff: 6},
		Kinds: map[protocol.MoveKind]MoveRow{protocol.Planned: {N: 1}, protocol.Crash: {N: 1}, protocol.Exit: {N: 1},
			protocol.Join: {N: 3}},
	}
	expect.Equal(t, "moves", want, got)

	uid := "u1" // due at 12, between the tenures' last and first write, and served at 31; the other At was served before
	r := Judge(slices.Values(parse(t, `
		0-1 ~a create lease:a
		0-1 ~b create lease:b
		0-1 ~c create lease:c
		0-1 ~d create lease:d
		0-1 ~a create rec:west/ h=a e=1 rv=10
		1-2 - create at:a due=12 uid=`+uid+`
		1-2 - create at:b due=3 uid=u2
		5-9 west/@1:a create pod:b-pod owner=u2
		8-21 west/@1:a patch web:late
		20-21 ~a patch rec:west/ h=b e=2 rv=12 move=Planned
		30-31 west/@2:b create pod:a-pod owner=`+uid+`
		40-41 ~b patch rec:west/ h=c e=3 rv=13 move=Exit
		50-51 west/@3:c patch web:x
		60-61 ~d patch lease:c sealed=d
		62-63 ~d patch rec:west/ h=d e=4 rv=14 move=Planned`)), Facts{}, few)
	planned := Handoff{
		Shard: "west/", Kind: protocol.Planned, From: "a", To: "b", Epoch: 2, Time: instant(ms(21)), Writes: 1,
		Steps:    map[Step]int{StepHandoff: 1},
		InFlight: 1, GapMs: new(9.0), Due: 1, UnservedMs: new(9.0),
	}
	exit := Handoff{
		Shard: "west/", Kind: protocol.Exit, From: "b", To: "c", Epoch: 3, Time: instant(ms(41)), Writes: 1,
		Steps: map[Step]int{StepHandoff: 1}, GapMs: new(19.0),
	}
	crash := Handoff{ // although its writer calls it a planned move
		Shard: "west/", Kind: protocol.Crash, From: "c", To: "d", Epoch: 4, Time: instant(ms(63)), Writes: 1,
		Steps: map[Step]int{StepHandoff: 1},
	}
	if diff := gocmp.Diff([]Handoff{planned, exit, crash}, r.Handoffs[1:]); diff != "" || !r.OK {
		t.Errorf("handoffs (-want +got):\n%s\n%v", diff, r.Err())
	}
}

// Copies follow what a Deployment asks for. So a change of its status is no demand, and our condition in it no answer.
func TestAStatusIsNoDemandAndServesNone(t *testing.T) {
	for changed, due := range map[string]int{"": 1, " sub=status": 0} {
		r := Judge(slices.Values(parse(t, `
			0-1 ~a create rec:west/ h=a e=1 rv=10
			5-9 west/@1:a patch web:x of=u1 in=east
			10-12 - patch web:x replicate=1 uid=u1`+changed+`
			14-16 west/@1:a patch web:x uid=u1 sub=status
			20-21 ~a patch rec:west/ h=b e=2 rv=12 move=Planned
			30-31 west/@2:b patch web:x of=u1 in=east`)), Facts{}, few)
		if last := r.Handoffs[len(r.Handoffs)-1]; last.Due != due || !r.OK {
			t.Errorf("change%s: %d keys due, want %d; %v", changed, last.Due, due, r.Err())
		}
	}
}

// To mark an At as begun doesn't serve it.
func TestAnAtWaitsUntilItIsServed(t *testing.T) {
	for name, c := range map[string]struct {
		more     string
		due      int
		unserved *float64
	}{
		"until its Pod is made":            {"60-61 west/@2:b create pod:a-pod owner=u1", 1, new(46.0)},
		"until it is DONE without one":     {"40-41 - update at:a uid=u1 due=12 phase=DONE", 0, nil},
		"until it is deleted":              {"40-41 - delete at:a", 0, nil},
		"as long as nobody serves it":      {"", 1, new(46.0)},
		"or nobody knows: a lost answer":   {"15-16 west/@1:a create pod:a-pod owner=u1 code=504", 0, nil},
		"not once its Pod is made by then": {"13-14 west/@1:a create pod:a-pod owner=u1", 0, nil},
	} {
		r := Judge(slices.Values(parse(t, `
			0-1 ~a create rec:west/ h=a e=1 rv=10
			1-2 - create at:a due=12 uid=u1
			13-14 west/@1:a update at:a uid=u1 due=12 phase=RUNNING
			20-21 ~a patch rec:west/ h=b e=2 rv=12 move=Planned
			60-61 west/@2:b patch web:x
			`+c.more)), Facts{}, few)
		last := r.Handoffs[len(r.Handoffs)-1]
		expect.Equal(t, name+": keys due", c.due, last.Due)
		expect.Equal(t, name+": unserved", c.unserved, last.UnservedMs)
	}
}

// A key that one holder leaves unserved, and the next one too, has waited all the time.
func TestKeysThatATenureLeavesUnservedWaitOn(t *testing.T) {
	r := Judge(slices.Values(parse(t, `
		0-1 ~a create rec:west/ h=a e=1 rv=10
		1-2 - create at:a due=12 uid=u1
		5-9 west/@1:a patch web:x
		20-21 ~a patch rec:west/ h=b e=2 rv=12 move=Planned
		25-26 ~b patch rec:west/ h=c e=3 rv=13 move=Planned
		60-61 west/@3:c create pod:a-pod owner=u1`)), Facts{}, few)
	last := r.Handoffs[len(r.Handoffs)-1]
	if last.Epoch != 3 || last.GapMs != nil || last.Due != 1 || last.UnservedMs == nil || *last.UnservedMs != 48 {
		t.Errorf("the last handoff: %+v, want one key that waited for 48 ms", last)
	}
}

func TestSteadyStateLeavesOutMovesAndArrivals(t *testing.T) {
	log := "0-1 ~r-1 create lease:r-1\n"
	for s := 1; s <= 60; s++ {
		if s%2 == 0 || s <= 2 {
			log += fmt.Sprintf("%d-%d ~r-1 update lease:r-1\n", s*1000, s*1000+1)
		}
	}
	c := Judge(slices.Values(parse(t, log)), Facts{}, few).Coordination
	if rate := *cmp.Or(c.PerSecond, new(0.0)); rate < 0.45 || rate > 0.55 || c.Replicas != 1 {
		t.Errorf("want about 0.5 writes a second by one replica, got %+v", c)
	}
}
