package localplane

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// BinaryVariable names the control-plane binary when it is not where FindBinary would look.
const BinaryVariable = "TENURE_CONTROLPLANE"

// ErrNoBinary says that a program has not been built, or not where it was looked for.
var ErrNoBinary = errors.New("no such program")

// FindBinary returns the control-plane binary: see [FindProgram].
func FindBinary() (string, error) {
	return FindProgram("controlplane", os.Getenv(BinaryVariable), BinaryVariable, "make controlplane")
}

// FindProgram returns the program that is named; if none is, the one beside the running program; else bin/name in the
// working directory's module, or in a module around it. by is what can name one, command is what makes it.
func FindProgram(name, named, by, command string) (string, error) {
	if named != "" {
		return checkBinary(named, "named by "+by, command)
	}
	var tried []string
	if self, err := os.Executable(); err == nil {
		tried = append(tried, filepath.Join(filepath.Dir(self), name))
	}
	folder, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("looking for %s: %w", name, err)
	}
	for ; ; folder = filepath.Dir(folder) {
		// Only modules are looked into, so that a stray /bin/controlplane is never taken for ours.
		if _, err := os.Stat(filepath.Join(folder, "go.mod")); err == nil {
			tried = append(tried, filepath.Join(folder, "bin", name))
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
	return "", fmt.Errorf("%w: %s: tried %q; run `%s` (the first time may take minutes), or name one with %s", ErrNoBinary,
		name, tried, command, by)
}

// checkBinary makes a path absolute that somebody named.
func checkBinary(path, origin, command string) (string, error) {
	if !executable(path) {
		return "", fmt.Errorf("%w: %s, %s, is missing or not executable; run `%s` or name another one", ErrNoBinary,
			path, origin, command)
	}
	return filepath.Abs(path)
}

func executable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0
}
