package shard

import (
	"context"
	"errors"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-dev/tenure/pkg/budget"
	"github.com/tenure-dev/tenure/shard/internal/engage"
	"github.com/tenure-dev/tenure/shard/internal/memory"
	"github.com/tenure-dev/tenure/shard/internal/turnstile"
	"github.com/tenure-dev/tenure/shard/keyspace"
	"github.com/tenure-dev/tenure/test/must"
)

func TestMain(m *testing.M) {
	utilruntime.ErrorHandlers = nil // one of them sleeps by a clock that bubbles don't share
	os.Exit(m.Run())
}

// The servers of many clusters change at once, and one of the new ones never answers a list.
func TestAShardWhoseCachesAreNeverFilledDoesNotKeepOthersFromChangingOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := engage.NewGate(t.Context(), keyspace.ShardID{Cluster: "west"}, "agent", "a-1", func() bool { return true })
		o := opening{gate: gate, log: logr.Discard(), failures: budget.OnceAMinute(), turns: &turnstile.Turnstile{}}
		stuck, err := o.takeTurn(t.Context())
		if err != nil {
			t.Fatal("the first gets no turn")
		}
		began := time.Now()
		next, err := o.takeTurn(t.Context())
		if waited := time.Since(began); err != nil || waited != changeTurn {
			t.Fatalf("the next gets its turn after %v (%v), want %v", waited, err, changeTurn)
		}
		stuck() // its turn is over: this must not end the other's
		ctx, cancel := context.WithTimeout(t.Context(), changeTurn/2)
		defer cancel()
		if _, err := o.takeTurn(ctx); err == nil {
			t.Error("two have a turn")
		}
		next()
		last, err := o.takeTurn(t.Context())
		if err != nil {
			t.Error("a turn that was given back is kept")
		}
		last()
	})
}

// throng is a shard of west whose replica is short of memory, and whose turn to fill caches somebody else has.
func throng(t *testing.T) (o opening, west *offering, leave func()) {
	return throngOf(t, &fakeServer{name: "1", uid: "w"})
}

// throngOf is one over a server.
func throngOf(t *testing.T, server *fakeServer) (o opening, west *offering, leave func()) {
	west = offeredBy(t, server, &corev1.Pod{})
	gate := engage.NewGate(t.Context(), keyspace.ShardID{Cluster: "west"}, "agent", "a-1", func() bool { return true })
	short := memory.NewRoom(func() memory.Use { return memory.Use{Bytes: 95, Limit: 100} }, logr.Discard())
	leave, err := short.Enter(t.Context())
	must.Succeed(t, err)
	return opening{gate: gate, log: logr.Discard(), failures: budget.OnceAMinute(), room: short,
		spawn: func(f func()) { go f() },
		find:  func() (realCluster, *engage.Traffic) { return west.get("west") }}, west, leave
}

// tries are the ways to fill caches, by what is logged if they can't be filled.
var tries = map[string]func(*shardCluster, context.Context, opening){
	"shard can't be warmed yet": func(v *shardCluster, ctx context.Context, o opening) { v.warm(ctx, o) },
	"shard can't change over to the other server yet": func(v *shardCluster, ctx context.Context, o opening) {
		now, _ := o.find()
		v.warmed, v.clusterNo, v.connection, v.end = true, now.clusterNo, now.connection-1, func() {}
		v.follow(ctx, o)
	},
}

// logTo returns a log whose lines are collected. Read them when nothing writes any more.
func logTo(lines *[]string) logr.Logger {
	var mu sync.Mutex
	return funcr.New(func(_, args string) {
		mu.Lock()
		defer mu.Unlock()
		*lines = append(*lines, args)
	}, funcr.Options{})
}

// Lists that fail are repeated for ever, so no attempt ends where a kind may not be listed.
func TestItIsLoggedWhichCachesAreNotFilledForLong(t *testing.T) {
	for what, try := range tries {
		for refused, want := range map[time.Duration]int{0: 0, 3 * time.Second: 0, time.Hour: 2} {
			synctest.Test(t, func(t *testing.T) {
				server := &fakeServer{name: "1", uid: "w"}
				server.keepsPods.Store(true)
				time.AfterFunc(refused, func() { server.keepsPods.Store(false) })
				o, _, leave := throngOf(t, server)
				leave()
				var lines []string
				o.log, o.cluster, o.told, o.changed = logTo(&lines), "west", func(uint64) {}, func() {}
				pods := &metav1.PartialObjectMetadata{}
				pods.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
				o.opts.Kinds, o.turns = []engage.Kind{{Object: pods}}, &turnstile.Turnstile{}
				ctx, cancel := context.WithTimeout(t.Context(), 75*time.Second)
				defer cancel()
				v := &shardCluster{}
				go try(v, ctx, o)
				<-ctx.Done()
				synctest.Wait()
				now, _ := o.find()
				if filled := v.warmed && v.connection == now.connection; filled != (want == 0) {
					t.Errorf("%s, refused for %v: filled: %v", what, refused, filled)
				}
				var of []string
				for _, line := range lines {
					if strings.Contains(line, what) && strings.Contains(line, "informer of Pod isn't synced") {
						of = append(of, line)
					}
				}
				if len(of) != want {
					t.Errorf("%s, refused for %v: %d lines in 75 s, want %d: %q", what, refused, len(of), want, lines)
				}
			})
		}
	}
}

// A cluster may have hundreds of shards, and each tries every few seconds.
func TestOfAClusterWhoseCachesCannotBeFilledOneLineAMinuteIsLogged(t *testing.T) {
	for what, try := range tries {
		synctest.Test(t, func(t *testing.T) {
			o, _, leave := throng(t)
			defer leave()
			var lines []string
			o.log = logTo(&lines)
			o.opts.Kinds = []engage.Kind{{Object: &corev1.ConfigMap{}}} // which the cluster doesn't serve
			o.turns, o.told = &turnstile.Turnstile{}, func(uint64) {}
			ctx, cancel := context.WithTimeout(t.Context(), 150*time.Second)
			defer cancel()
			for _, o.cluster = range []keyspace.ClusterName{"west", "east"} {
				for range 5 {
					go try(&shardCluster{}, ctx, o)
				}
			}
			<-ctx.Done()
			synctest.Wait()
			for _, cluster := range []string{"west", "east"} {
				var of []string
				for _, line := range lines {
					if strings.Contains(line, what) && strings.Contains(line, `"cluster"="`+cluster+`"`) {
						of = append(of, line)
					}
				}
				if len(of) != 3 || strings.Contains(of[2], `"leftOut"=0`) {
					t.Errorf("%s: %d lines in 150 s, want 3, and what was left out: %q", cluster, len(of), of[:min(len(of), 4)])
				}
			}
		})
	}
}

// A kind that is gone, or may not be listed any more, leaves caches as they were, and the cluster answers all the same.
func TestAShardWhoseCachesAreNotKeptUpToDateIsStuckAndThatIsLogged(t *testing.T) {
	const unusable = 20 * time.Second
	for what, c := range map[string]struct {
		refused, unusable time.Duration
		least, most       int // for so many seconds it is stuck
		lines             int
	}{
		"refused for a moment":                        {3 * time.Second, 0, 0, 0, 0},
		"refused for long":                            {80 * time.Second, 0, 62, 73, 2},
		"the cluster can't be used for a while":       {unusable, unusable, 20, 20, 0},
		"nor may Pods be listed when it can be again": {45 * time.Second, unusable, 29, 41, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			server := &fakeServer{name: "1", uid: "w", ends: 2 * time.Second}
			o, west, leave := throngOf(t, server)
			leave()
			pods := &metav1.PartialObjectMetadata{}
			pods.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
			o.opts.Kinds, o.told = []engage.Kind{{Object: pods}}, func(uint64) {}
			e := &engagement{id: o.gate.Shard(), ctx: t.Context(), gate: o.gate}
			if !e.own.warm(t.Context(), o) {
				t.Fatal("its caches aren't filled")
			}
			var lines []string
			g := &engager{log: logTo(&lines), failures: budget.OnceAMinute(), clusters: west.clusterSet,
				roster: newRoster(Config{})}
			g.roster.put(e.name(), e)
			g.judge = newJudge(west.clusterSet, g.roster, 10*time.Second, logr.Discard(), nil, nil)
			real, _ := west.get("west")
			g.judge.verdicts["west"] = &clusterVerdict{connection: real.connection}
			server.keepsPods.Store(true)
			time.AfterFunc(c.refused, func() { server.keepsPods.Store(false) })
			stuck := 0
			for began := time.Now(); time.Since(began) < 2*time.Minute; time.Sleep(time.Second) {
				g.judge.verdicts["west"].trouble = nil
				if time.Since(began) < c.unusable {
					g.judge.verdicts["west"].trouble = errUnavailable
				}
				if !g.stuck(ShardStatus{ID: e.id, Phase: "active"}, e, time.Now()).IsZero() {
					stuck++
				}
			}
			said := strings.Join(lines, "\n")
			told := strings.Count(said, "informer of Pod isn't kept up to date: no")
			if stuck < c.least || stuck > c.most || told != c.lines || len(lines) != told {
				t.Errorf("%s: stuck for %d s, want %d to %d; %d lines tell of it, want %d: %s", what, stuck, c.least, c.most, told,
					c.lines, said)
			}
		})
	}
}

func TestThatADividedClusterLacksAnIndexIsLoggedOncePerCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, _, leave := throng(t)
		leave()
		var lines []string
		o.log = logTo(&lines)
		none := func(client.Object) []string { return nil }
		o.opts.Indexes = []engage.Index{{Object: &corev1.Pod{}, Field: "node", Extract: none}}
		real, traffic := o.find()
		for _, o.cluster = range []keyspace.ClusterName{"west", "west", "east"} {
			o.gate = engage.NewGate(t.Context(), keyspace.ShardID{Cluster: o.cluster, Prefix: keyspace.Partition(1)[0]}, "agent",
				"a-1", func() bool { return true })
			_, end, leave, err := startCaches(t.Context(), real, traffic, o)
			must.Succeed(t, err)
			leave()
			end()
		}
		if len(lines) != 2 || !strings.Contains(lines[0], "node of Pod") || !strings.Contains(lines[1], `"east"`) {
			t.Errorf("%d lines: %q", len(lines), lines)
		}
	})
}

func TestOnlyASilentClustersCachesNeedNoMemory(t *testing.T) {
	request, _ := http.NewRequest(http.MethodGet, "https://a/api/v1/namespaces/shop/pods/a", nil)
	for what, c := range map[string]struct {
		bad   func(*engage.Breaker)
		waits bool
	}{
		"answers": {func(*engage.Breaker) {}, true},
		"refuses": {func(b *engage.Breaker) { answered(b, http.StatusTooManyRequests, 3) }, true},
		"is silent": {func(b *engage.Breaker) {
			time.Sleep(engage.FirstPause)
			_, _ = engage.Unfenced(&fakeServer{code: -1}, b).RoundTrip(request)
		}, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			o, _, leave := throng(t)
			defer leave()
			real, traffic := o.find()
			c.bad(&traffic.Breaker)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, end, left, err := startCaches(ctx, real, traffic, o)
			if waits := err != nil; waits != c.waits {
				t.Errorf("a cluster that %s waits for its turn: %v (%v), want %v", what, waits, err, c.waits)
			}
			if err == nil {
				left()
				end()
			}
		})
	}
}

func TestAShardThatWaitedForMemoryIsNotOpenedOverAConnectionOfBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, west, leave := throng(t)
		real, traffic := o.find()
		time.AfterFunc(time.Second, func() {
			west.give("b", &fakeServer{name: "2", uid: "w"})
			leave()
		})
		if _, _, _, err := startCaches(t.Context(), real, traffic, o); !errors.Is(err, errMoved) {
			t.Errorf("it is opened over the connection of before: %v", err)
		}
	})
}

// A cluster may move on while a shard that has changed over looks whether it did.
func TestAShardFollowsAServerThatChangesWhileItLooks(t *testing.T) {
	v := &shardCluster{warmed: true, changing: true, clusterNo: 1, connection: 5}
	var moves sync.Once
	followed, spawned := make(chan struct{}), false
	o := opening{spawn: func(func()) { spawned = true }}
	o.find = func() (realCluster, *engage.Traffic) { return realCluster{clusterNo: 1, connection: 6}, nil }
	next := o
	o.find = func() (realCluster, *engage.Traffic) {
		moves.Do(func() {
			go func() { v.follow(t.Context(), next); close(followed) }()
			time.Sleep(20 * time.Millisecond) // which lets it get as far as it can
		})
		return realCluster{clusterNo: 1, connection: 5}, nil
	}
	if done := v.change(t.Context(), o); !done {
		t.Error("it changes over to the server by which it goes")
	}
	if <-followed; !spawned {
		t.Error("it stays with the server of before")
	}
}
