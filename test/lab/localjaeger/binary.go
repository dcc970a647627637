package localjaeger

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// BinaryVariable names the Jaeger binary when it is not where FindBinary would look.
const BinaryVariable = "TENURE_JAEGER"

// ErrNoBinary says that Jaeger has not been built, or not where it was looked for.
var ErrNoBinary = errors.New("no jaeger binary")

// FindBinary returns the Jaeger binary: the one that TENURE_JAEGER names; else "jaeger" beside the running program;
// else bin/jaeger in the working directory's module, or in a module around it.
func FindBinary() (string, error) {
	if path := os.Getenv(BinaryVariable); path != "" {
		if !executable(path) {
			return "", fmt.Errorf("%w: %s, named by %s, is missing or not executable", ErrNoBinary, path, BinaryVariable)
		}
		return filepath.Abs(path)
	}
	var tried []string
	if self, err := os.Executable(); err == nil {
		tried = append(tried, filepath.Join(filepath.Dir(self), "jaeger"))
	}
	folder, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("looking for the jaeger binary: %w", err)
	}
	for ; ; folder = filepath.Dir(folder) {
		if _, err := os.Stat(filepath.Join(folder, "go.mod")); err == nil {
			tried = append(tried, filepath.Join(folder, "bin", "jaeger"))
		}
		if folder == filepath.Dir(folder) {
			break
		}
	}
	for _, path := range tried {
		if executable(path) {
			return path, nil
		}
	}
	return "", fmt.Errorf("%w: tried %q; run `make jaeger` (minutes, the first time) or set %s", ErrNoBinary, tried, BinaryVariable)
}

func executable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0
}
