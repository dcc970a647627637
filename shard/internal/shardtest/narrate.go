package shardtest

import (
	"strconv"

	"github.com/tenure-dev/tenure/shard/internal/driver"
	"github.com/tenure-dev/tenure/shard/internal/ownership"
)

// narrate writes to the narration what a process does.
func (n *node) narrate(r driver.Request) {
	w := n.w
	switch r := r.(type) {
	case driver.Begin:
		n.id = r.ID
		w.say(n, "starts")
	case driver.Write:
		n.narrateWrite(r.Effect)
	case driver.Read:
		switch {
		case r.Of.Lease != "":
			w.say(n, "looks for the lease of %s", r.Of.Lease)
		case r.Of.Layout != "":
			w.say(n, "reads the layout of %s", r.Of.Layout)
		case w.all:
			w.say(n, "reads %s", (&request{of: r.Of}))
		}
	case driver.Warm:
		w.say(n, "warms %s", r.ID)
	case driver.Open:
		w.say(n, "SERVES %s at epoch %d", r.ID, r.Epoch)
	case driver.Drain:
		w.say(n, "drains %s", r.ID)
	case driver.Close:
		w.say(n, "closes %s", r.ID)
	case driver.Stop:
		w.say(n, "LAPSES: %s", r.Reason)
	case driver.End:
		if r.Err != nil {
			w.say(n, "GIVES UP: %v", r.Err)
		}
	}
}

func (n *node) narrateWrite(e ownership.Effect) {
	w := n.w
	switch e := e.(type) {
	case ownership.WriteLease:
		switch {
		case e.Base == 0:
			w.say(n, "asks to join")
		case e.Lease.Leaving:
			w.say(n, "asks to be marked as leaving")
		case w.all:
			w.say(n, "renews its lease (version %d)", e.Base)
		}
	case ownership.DropLease:
		w.say(n, "has left")
	case ownership.SealLease:
		w.say(n, "asks to seal the lease of %s (version %d)", e.ID, e.Base)
	case ownership.ForgetLease:
		w.say(n, "removes the sealed lease of %s", e.ID)
	case ownership.WriteLead:
		w.say(n, "asks to coordinate, epoch floor %d (version %d)", e.Lead.Floor, e.Base)
	case ownership.WriteLayout:
		w.say(n, "asks to divide %s into %v, generation %d (version %d)", e.Layout.Cluster, e.Layout.Prefixes,
			e.Layout.Generation, e.Base)
	case ownership.CreateShard:
		w.say(n, "asks to create %s for %s", e.ID, e.Assignee)
	case ownership.WriteAssignee:
		w.say(n, "plans %s for %s (version %d)", e.ID, e.Assignee, e.Base)
	case ownership.WriteShard:
		n.narrateShard(e)
	}
}

func (n *node) narrateShard(e ownership.WriteShard) {
	w, s := n.w, e.Shard
	switch e.Kind {
	case ownership.AnnounceWarm:
		if s.Warm == "" {
			w.say(n, "asks to note that it isn't warm for %s any more (version %d)", s.ID, s.Version)
			return
		}
		w.say(n, "asks to note that it is warm for %s (version %d)", s.ID, s.Version)
	case ownership.HandOff, ownership.HandOffOnExit:
		w.say(n, "asks to hand %s off to %s at epoch %d (version %d)", s.ID, s.Holder, s.Epoch, s.Version)
	case ownership.Release:
		w.say(n, "asks to release %s (version %d)", s.ID, s.Version)
	case ownership.ClaimFree, ownership.ClaimDead:
		w.say(n, "asks to claim %s from %q at epoch %d (version %d)", s.ID, e.From, s.Epoch, s.Version)
	case ownership.Retire:
		w.say(n, "asks to retire %s (version %d)", s.ID, s.Version)
	case ownership.Clear:
		w.say(n, "asks to clear %s of %q (version %d)", s.ID, e.From, s.Version)
	case ownership.Report:
		w.say(n, "reports on %s (version %d)", s.ID, s.Version)
	}
}

// narrateArrival writes to the narration what the store did with a request.
func (w *world) narrateArrival(req *request, outcome ownership.Outcome, again bool) {
	_, renewal := req.effect.(ownership.WriteLease)
	if renewal && !w.all && outcome == ownership.Committed {
		return
	}
	what := outcome.String()
	if outcome == ownership.Committed {
		what += ", version " + strconv.FormatUint(uint64(w.store.version), 10)
	}
	if again {
		what += " (a repeat)"
	}
	w.say(nil, "  %s: %s: %s", req.id, req, what)
}
