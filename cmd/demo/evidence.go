package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// keepEvidence copies the logs out of a folder that is about to be removed, after a run that failed. Its error is
// never nil: it says where they are, or why they aren't anywhere.
func keepEvidence(from string) error {
	to, err := os.MkdirTemp("", "tenure-demo-failed-")
	if err != nil {
		return fmt.Errorf("keeping the logs: %w", err)
	}
	err = filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".log" {
			return err
		}
		inside, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, inside)
		if err := os.MkdirAll(filepath.Dir(target), 0o700); err != nil {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(target, content, 0o600)
	})
	if err != nil {
		return fmt.Errorf("keeping the logs in %s: %w", to, err)
	}
	return fmt.Errorf("the logs are kept in %s", to)
}
