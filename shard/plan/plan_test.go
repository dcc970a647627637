package plan_test

import (
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenure-dev/tenure/shard/plan"
)

func TestPlanMakesTheMovesThatAreDue(t *testing.T) {
	tests := map[string]struct {
		fleet  string
		limits plan.Limits
		want   []string
	}{
		"nothing, in a balanced fleet": {
			fleet: `r1
				r2
				w/0 r1
				w/1 r2`,
		},
		"nothing, without replicas": {fleet: `w/ dead`},
		"nothing new for anybody, when all leave": {
			fleet: `r1 leaving
				r2 leaving
				w/00 r1
				w/01
				w/10 r1>r2`,
		},
		"orphans are placed, whoever held them": {
			fleet: `r1
				r2
				w/0 dead
				w/1`,
			want: []string{"w/0 >r1 orphan", "w/1 >r2 orphan"},
		},
		"orphans are placed beyond the budget": {
			fleet: `r1
				w/00
				w/01
				w/10`,
			limits: plan.Limits{MaxInMotion: 1},
			want:   []string{"w/00 >r1 orphan", "w/01 >r1 orphan", "w/10 >r1 orphan"},
		},
		"an orphan on its way to a live assignee is not placed again": {
			fleet: `r1
				r2
				w/00 dead>r2
				w/01 r2
				w/10 r1`,
		},
		"an orphan whose assignee is dead too is placed": {
			fleet: `r1
				w/ dead>dead2`,
			want: []string{"w/ >r1 orphan"},
		},
		"a joiner takes its part from the fullest": {
			fleet: `r1
				r2
				r3
				w/000 r1
				w/001 r1
				w/010 r1
				w/011 r1
				w/100 r2
				w/101 r2
				w/110 r2`,
			want: []string{"w/011 r1>r3 balance", "w/110 r2>r3 balance"},
		},
		"a joiner gets shards of different clusters": {
			fleet: `r1
				r2
				r3
				a/0 r1
				a/1 r2
				b/0 r1
				b/1 r2
				c/0 r1
				c/1 r2`,
			want: []string{"a/0 r1>r3 balance", "b/1 r2>r3 balance"},
		},
		"a receiver gets shards of clusters that it has few of": {
			fleet: `r1
				r2
				a/0 r1
				a/1 r2
				b/ r1
				c/ r1`,
			want: []string{"b/ r1>r2 balance"},
		},
		"the budget counts what is in motion already": {
			fleet: `r1
				r2
				w/000 r1
				w/001 r1
				w/010 r1
				w/011 r1
				w/100 r1
				w/101 r1>r2`,
			limits: plan.Limits{MaxInMotion: 2},
			want:   []string{"w/100 r1>r2 balance"},
		},
		"moves off a leaving replica don't wait, and leave no room for others": {
			fleet: `r1
				r2
				r3 leaving
				w/000 r1
				w/001 r1
				w/010 r1
				w/011 r1
				w/100 r3
				w/101 r3`,
			limits: plan.Limits{MaxInMotion: 2},
			want:   []string{"w/100 r3>r2 leaving", "w/101 r3>r2 leaving"},
		},
		"a move to a dead assignee is called off": {
			fleet: `r1
				w/ r1>dead`,
			limits: plan.Limits{MaxInMotion: 1},
			want:   []string{"w/ r1>r1 called-off"},
		},
		"a move to an assignee that leaves is called off, and makes room": {
			fleet: `r1
				r2
				r3 leaving
				w/00 r1
				w/01 r1
				w/10 r1
				w/11 r1>r3`,
			limits: plan.Limits{MaxInMotion: 1},
			want:   []string{"w/11 r1>r1 called-off", "w/10 r1>r2 balance"},
		},
		"a weight of two is worth two parts": {
			fleet: `r1
				r2 w2
				a/0 r1
				a/1 r1
				b/ r1`,
			want: []string{"a/1 r1>r2 balance", "a/0 r1>r2 balance"},
		},
		"the odd shard goes to the largest remainder": {
			fleet: `r1 w2
				r2
				w/0
				w/1`,
			want: []string{"w/0 >r1 orphan", "w/1 >r2 orphan"},
		},
		"an orphan on its way takes no room": {
			fleet: `r1
				r2
				w/00 dead>r2
				w/01 r1
				w/10 r1
				w/11 r1`,
			limits: plan.Limits{MaxInMotion: 1},
			want:   []string{"w/11 r1>r2 balance"},
		},
		"a pinned shard goes where it is pinned, before shards move for balance": {
			fleet: `r1
				r2
				w/000 r1
				w/001 r1
				w/010 r1
				w/011 r1
				w/100 r1
				w/101 r1 @r2`,
			limits: plan.Limits{MaxInMotion: 2},
			want:   []string{"w/101 r1>r2 pin", "w/100 r1>r2 balance"},
		},
		"a pin to nobody is no pin": {
			fleet: `r1
				r2
				w/0 @r9
				w/1 r1 @r9`,
			want: []string{"w/0 >r2 orphan"},
		},
		"a pin turns aside what is on its way elsewhere, whatever the budget": {
			fleet: `r1
				r2
				r3
				w/ r1>r2 @r3`,
			limits: plan.Limits{MaxInMotion: 1},
			want:   []string{"w/ r1>r3 pin"},
		},
		"in a rollout only the newest get shards": {
			fleet: `r1 v1
				r2 v1
				r3 v2
				w/00 r1
				w/01 dead
				w/10 dead
				w/11 r1`,
			limits: plan.Limits{Version: "v2"},
			want:   []string{"w/01 >r3 orphan", "w/10 >r3 orphan"},
		},
		"in a rollout, what is left beside a fixed surplus is divided too": {
			fleet: `r1 v1
				r2 v2
				r3 v2
				a/00 r1
				a/01 r1
				a/10 r1
				b/000 r3>r2
				b/001 r3>r2
				b/010 r3>r2
				b/011 r3>r2
				b/100 r3>r2
				b/101 r3>r2
				b/110 r3>r2
				b/111 r3>r2`,
			limits: plan.Limits{Version: "v2"},
			want:   []string{"a/10 r1>r3 balance"},
		},
		"in a rollout without a newest replica, orphans go to the outgoing": {
			fleet: `r1 v1
				r3 v2 leaving
				w/0 dead`,
			limits: plan.Limits{Version: "v2"},
			want:   []string{"w/0 >r1 orphan"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			f := parse(t, test.fleet)
			f.limits = test.limits
			if diff := cmp.Diff(test.want, lines(f.plan())); diff != "" {
				t.Errorf("plan (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTargetKeepsEverythingWhereItIsWhenAllLeave(t *testing.T) {
	f := parse(t, `r1 leaving
		r2 leaving
		w/00 r1
		w/01
		w/10 r1>r2
		w/11 r2>dead`)
	got := map[string]plan.Incarnation{}
	for id, to := range f.target() {
		got[id.String()] = to
	}
	want := map[string]plan.Incarnation{"w/00": "r1", "w/10": "r2", "w/11": "r2"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("target (-want +got):\n%s", diff)
	}
}

func TestARollingRestartMovesNothingToTheOutgoing(t *testing.T) {
	f := newFleet(3, 4, 3)
	for i := range f.replicas {
		f.replicas[i].Version = "v1"
	}
	f.settle(t)
	f.limits.Version = "v2"
	for i := range 3 {
		f.join(10 + i)
		f.replicas[len(f.replicas)-1].Version = "v2"
		f.settle(t)
		f.replicas[0].Leaving = true
		for _, move := range f.plan() {
			if strings.HasPrefix(string(move.To), "r000") {
				t.Errorf("restart %d moves %q", i, lines([]plan.Move{move}))
			}
		}
		f.settle(t)
		f.replicas = f.replicas[1:]
	}
	if moves := f.plan(); len(moves) > 0 {
		t.Errorf("after the rollout: %q", lines(moves))
	}
	for id, n := range f.counts() {
		if n < 10 || n > 11 {
			t.Errorf("%s has %d of 32 shards after the rollout", id, n)
		}
	}
}

func TestLimitsThatMakeNoSenseAreAllReported(t *testing.T) {
	if err := (plan.Limits{}).Validate(); err != nil {
		t.Errorf("the zero limits: %v", err)
	}
	if err := (plan.Limits{MaxInMotion: 4, Imbalance: 0.2, Version: "v2"}).Validate(); err != nil {
		t.Errorf("reasonable limits: %v", err)
	}
	for _, imbalance := range []float64{-0.1, math.NaN(), math.Inf(1)} {
		err := plan.Limits{MaxInMotion: -1, Imbalance: imbalance}.Validate()
		if err == nil || !strings.Contains(err.Error(), "MaxInMotion") || !strings.Contains(err.Error(), "Imbalance") {
			t.Errorf("MaxInMotion -1 and Imbalance %v: %v, want both named", imbalance, err)
		}
	}
}
