package run

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tenure-dev/tenure/bench/load"
	"github.com/tenure-dev/tenure/bench/scenario"
	"github.com/tenure-dev/tenure/test/lab"
)

// perform does the steps of a scenario, each at its time after start. It calls tell as each begins.
func (f *fleet) perform(ctx context.Context, steps []scenario.Step, start time.Time, tell func(what string)) error {
	for _, s := range steps {
		if err := lab.Sleep(ctx, time.Until(start.Add(s.After.D()))); err != nil {
			return err
		}
		tell(string(s.Do))
		if err := f.do(ctx, s.Do); err != nil {
			return fmt.Errorf("%s: %w", s.Do, err)
		}
	}
	return nil
}

func (f *fleet) do(ctx context.Context, what scenario.Action) error {
	live := f.live()
	switch what {
	case scenario.Start:
		return f.start()
	case scenario.Join:
		return f.startReplica(fmt.Sprintf("r%d", len(f.all())+1))
	case scenario.PauseCluster:
		return f.site.planes.Cluster(f.site.last().Name).Pause()
	case scenario.Resume:
		return f.site.planes.Cluster(f.site.last().Name).Resume()
	case scenario.Restart:
		return f.restart(ctx, live)
	case scenario.Drift:
		return load.Drift(ctx, f.ledger.Complete(firstRound), f.site.clusters, f.load.DriftEvery.D(), f.ledger.Drift)
	}
	if len(live) == 0 {
		return errors.New("no replica is left")
	}
	victim := live[len(live)-1]
	if what == scenario.Leave {
		return victim.Leave(ctx, leaveWithin)
	}
	killed := victim.Kill()
	f.mu.Lock()
	f.kills = append(f.kills, kill{victim.Name, killed})
	f.mu.Unlock()
	return nil
}

// restart is a rolling restart: one replica at a time, the next only when the one before holds shards again.
func (f *fleet) restart(ctx context.Context, live []*process) error {
	for _, p := range live {
		before := f.timeline.Held()
		if err := p.Leave(ctx, leaveWithin); err != nil {
			return err
		}
		if err := f.startReplica(p.Name); err != nil {
			return err
		}
		err := eventually(ctx, func() error {
			if !f.timeline.HeldAnew(p.Name, before) {
				return fmt.Errorf("replica %s holds nothing %v after its restart", p.Name, servedWithin)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}
