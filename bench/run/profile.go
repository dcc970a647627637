package run

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/tenure-dev/tenure/test/lab"
)

// profileSeconds is how long a profile is taken.
const profileSeconds = 5

// profile takes a CPU profile of each replica, from the start of the load on, for `go tool pprof`. It costs the
// replicas some percent, so figures of such a run aren't for publishing.
func (f *fleet) profile(ctx context.Context, start time.Time) {
	if f.options.Profile == "" || lab.Sleep(ctx, max(0, time.Until(start))) != nil {
		return
	}
	for _, p := range f.live() {
		if !p.profiled {
			continue
		}
		f.wait.Go(func() {
			path := filepath.Join(f.options.Profile, string(f.as)+"-"+p.Name+".pprof")
			if err := p.profile(ctx, path); err != nil && ctx.Err() == nil {
				f.say("no profile of %s: %v", p.Name, err)
			}
		})
	}
}

func (p *process) profile(ctx context.Context, path string) error {
	ctx, cancel := context.WithTimeout(ctx, 4*profileSeconds*time.Second)
	defer cancel()
	url := fmt.Sprintf("http://%s/debug/pprof/profile?seconds=%d", p.Address(1), profileSeconds)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("answer %s", response.Status)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	content, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	return os.WriteFile(path, content, 0o644)
}
