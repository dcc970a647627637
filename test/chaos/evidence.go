package main

import (
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// keepEvidence copies what is needed to look into a failure before the planes' folder goes.
func keepEvidence(from string) (string, error) {
	dir, err := os.MkdirTemp("", "tenure-chaos-")
	if err != nil {
		return "", err
	}
	parts := []string{"replicas"}
	for _, pattern := range []string{"*/audit.log", "*/logs"} {
		found, err := filepath.Glob(filepath.Join(from, pattern))
		if err != nil {
			return dir, err
		}
		for _, path := range found {
			parts = append(parts, filepath.Join(filepath.Base(filepath.Dir(path)), filepath.Base(path)))
		}
	}
	for _, part := range parts {
		if err := copyTree(from, dir, part); err != nil {
			return dir, err
		}
	}
	return dir, nil
}

// copyTree copies a file or folder below from to the same place below to.
func copyTree(from, to, part string) error {
	return filepath.WalkDir(filepath.Join(from, part), func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, relative)
		if entry.IsDir() {
			return os.MkdirAll(target, 0o700)
		}
		if !entry.Type().IsRegular() {
			return nil
		}
		return copyFile(path, target)
	})
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return err
	}
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		out.Close()
		return err
	}
	return out.Close()
}
