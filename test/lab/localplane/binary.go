package localplane

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// BinaryVariable names the control-plane binary when it is not where FindBinary would look.
const BinaryVariable = "TENURE_CONTROLPLANE"

// ErrNoBinary says that the control-plane binary has not been built, or not where it was looked for.
var ErrNoBinary = errors.New("no control-plane binary")

// FindBinary returns the control-plane binary: the one that TENURE_CONTROLPLANE names; else "controlplane" beside
// the running program; else bin/controlplane in the working directory's module, or in a module around it.
func FindBinary() (string, error) {
	if path := os.Getenv(BinaryVariable); path != "" {
		return checkBinary(path, "named by "+BinaryVariable)
	}
	var tried []string
	if self, err := os.Executable(); err == nil {
		tried = append(tried, filepath.Join(filepath.Dir(self), "controlplane"))
	}
	folder, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("looking for the control-plane binary: %w", err)
	}
	for ; ; folder = filepath.Dir(folder) {
		// Only modules are looked into, so that a stray /bin/controlplane is never taken for ours.
		if _, err := os.Stat(filepath.Join(folder, "go.mod")); err == nil {
			tried = append(tried, filepath.Join(folder, "bin", "controlplane"))
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
	return "", fmt.Errorf("%w: tried %q; run `make controlplane` (minutes, the first time) or set %s", ErrNoBinary, tried, BinaryVariable)
}

func checkBinary(path, origin string) (string, error) {
	if !executable(path) {
		return "", fmt.Errorf("%w: %s, %s, is missing or not executable; run `make controlplane` or set %s to a built one",
			ErrNoBinary, path, origin, BinaryVariable)
	}
	return filepath.Abs(path)
}

func executable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0
}
