package plan_test

import (
	"testing"

	"github.com/tenure-dev/tenure/test/expect"
)

// due is a fleet and the moves that are planned in it.
type due struct {
	fleet string
	want  []string
}

func makes(t *testing.T, tests map[string]due) {
	t.Helper()
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			expect.Equal(t, "plan", test.want, lines(parse(t, test.fleet).plan()))
		})
	}
}

func TestPlanMakesTheMovesThatAreDue(t *testing.T) {
	makes(t, map[string]due{
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
		"what is in motion already counts where it goes": {
			fleet: `r1
				r2
				w/000 r1
				w/001 r1
				w/010 r1
				w/011 r1
				w/100 r1
				w/101 r1>r2`,
			want: []string{"w/100 r1>r2 balance", "w/011 r1>r2 balance"},
		},
		"a move to a dead assignee is called off": {
			fleet: `r1
				w/ r1>dead`,
			want: []string{"w/ r1>r1 called-off"},
		},
		"a move to an assignee that leaves is called off before others begin": {
			fleet: `r1
				r2
				r3 leaving
				w/00 r1
				w/01 r1
				w/10 r1
				w/11 r1>r3`,
			want: []string{"w/11 r1>r1 called-off", "w/10 r1>r2 balance", "w/01 r1>r2 balance"},
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
		"a pinned shard goes where it is pinned, before shards move for balance": {
			fleet: `r1
				r2
				w/000 r1
				w/001 r1
				w/010 r1
				w/011 r1
				w/100 r1
				w/101 r1 @r2`,
			want: []string{"w/101 r1>r2 pin", "w/100 r1>r2 balance", "w/011 r1>r2 balance"},
		},
		"a pin to nobody is no pin": {
			fleet: `r1
				r2
				w/0 @r9
				w/1 r1 @r9`,
			want: []string{"w/0 >r2 orphan"},
		},
		"a pin turns aside what is on its way elsewhere": {
			fleet: `r1
				r2
				r3
				w/ r1>r2 @r3`,
			want: []string{"w/ r1>r3 pin"},
		},
	})
}
