package shardtest

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/test/expect"
	"github.com/tenure-dev/tenure/test/must"
)

var update = flag.Bool("update", false, "rewrite the transcripts of the stories")

func TestStoriesGoAsToldAndBreakNoInvariant(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(paths) < 13 {
		t.Fatalf("found %d stories (%v): want all of them", len(paths), err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			script, err := os.ReadFile(path)
			must.Succeed(t, err)
			told, err := Tell(script)
			if err != nil {
				t.Fatalf("%v\n%s", err, told)
			}
			if *update {
				must.Succeed(t, os.WriteFile(path, told, 0o644))
				return
			}
			expect.Equal(t, "the story goes differently; -update rewrites it", string(script), string(told))
		})
	}
}
