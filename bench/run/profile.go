package run

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/google/pprof/profile"

	"github.com/tenure-dev/tenure/bench/report"
	"github.com/tenure-dev/tenure/test/lab"
)

// profileFor is how long a profile is taken.
const profileFor = 5 * time.Second

// profile waits for the start of a round's load, begins a CPU profile of each process, and returns without waiting
// for the profiles; f.sampling counts those that are being taken. Without the option Profile it does nothing. A
// profile that fails is only reported. Profiling costs the processes some percent, so figures of such a run aren't
// published.
func (f *fleet) profile(ctx context.Context, namespace string, start time.Time) {
	if f.options.Profile == "" || lab.Sleep(ctx, max(0, time.Until(start))) != nil {
		return
	}
	f.sampling.Wait() // a process takes one at a time, and the round before may have been short
	for _, p := range f.live() {
		f.sampling.Go(func() {
			path := filepath.Join(f.options.Profile, fmt.Sprintf("%s-%s-%s.pprof", f.title(), p.Name, namespace))
			one, err := p.profile(ctx, path)
			if err != nil && ctx.Err() == nil {
				f.say("no profile of %s: %v", p.Name, err)
			}
			if err == nil {
				f.mu.Lock()
				defer f.mu.Unlock()
				f.profiles = append(f.profiles, one)
			}
		})
	}
}

// profile takes one and leaves it in a file, for `go tool pprof`.
func (p *process) profile(ctx context.Context, path string) (*profile.Profile, error) {
	ctx, cancel := context.WithTimeout(ctx, 4*profileFor)
	defer cancel()
	url := fmt.Sprintf("http://%s/debug/pprof/profile?seconds=%.0f", p.Address(1), profileFor.Seconds())
	content, err := lab.Get(ctx, url)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o755)
	}
	if err == nil {
		err = os.WriteFile(path, content, 0o644)
	}
	if err != nil {
		return nil, err
	}
	return profile.ParseData(content)
}

// title tells the fleet from the others of a run. A sweep has several of one kind.
func (f *fleet) title() string {
	if f.swept {
		return fmt.Sprintf("%s-of-%d", f.as, f.config.Replicas)
	}
	return string(f.as)
}

// taken are the fleet's profiles, with what its processes used per At.
func (f *fleet) taken(perAt *float64) report.Profiled {
	f.mu.Lock()
	defer f.mu.Unlock()
	return report.Profiled{Fleet: f.title(), Profiles: f.profiles, PerAt: perAt}
}
