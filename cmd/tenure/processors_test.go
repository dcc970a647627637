//go:build unix

package main

import (
	"runtime"
	"slices"
	"testing"
)

func TestOneProcessorWhileThereIsLittleToDo(t *testing.T) {
	calm := slices.Repeat([]float64{.1}, calmFor)
	for name, c := range map[string]struct {
		used []float64
		one  bool
	}{
		"at first":                        {nil, false},
		"not yet quiet for long":          {calm[1:], false},
		"quiet for long":                  {calm, true},
		"a pause in what is quiet":        {slices.Concat(calm[1:], []float64{.3, .1}), false},
		"more to do, but not too much":    {slices.Concat(calm, []float64{.3, .3, .3}), true},
		"too much for one":                {slices.Concat(calm, []float64{.4}), false},
		"too much, and quiet for a while": {slices.Concat(calm, []float64{1.9}, calm[1:]), false},
		"too much, and quiet for long":    {slices.Concat(calm, []float64{1.9}, calm), true},
	} {
		t.Run(name, func(t *testing.T) {
			var f frugality
			one := false
			for _, used := range c.used {
				one = f.next(used)
			}
			if one != c.one {
				t.Errorf("one processor: %v, want %v", one, c.one)
			}
		})
	}
}

func TestTheEnvironmentSaysHowManyProcessorsAreUsed(t *testing.T) {
	t.Setenv("GOMAXPROCS", "2")
	before := runtime.GOMAXPROCS(0)
	spareProcessors(t.Context()) // returns at once
	if now := runtime.GOMAXPROCS(0); now != before {
		t.Errorf("%d processors, %d before", now, before)
	}
}
