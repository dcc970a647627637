package main

import (
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
)

// evidence is where a run's audit logs are: the planes' own logs, or what was added to them during the run.
type evidence struct {
	dir   string
	logs  string           // the planes' folder; "" if dir is that folder
	sizes map[string]int64 // of the logs when the run began, by cluster
}

// since returns evidence of what is logged from now on. It will be copied into a folder.
func since(planes, dir string) (evidence, error) {
	e := evidence{dir: dir, logs: planes, sizes: map[string]int64{}}
	found, err := filepath.Glob(filepath.Join(planes, "*", "audit.log"))
	for _, path := range found {
		info, statErr := os.Stat(path)
		if err = errors.Join(err, statErr); err == nil {
			e.sizes[filepath.Base(filepath.Dir(path))] = info.Size()
		}
	}
	return e, err
}

// take copies what was logged since.
func (e evidence) take() error {
	for cluster, size := range e.sizes {
		in, err := os.Open(filepath.Join(e.logs, cluster, "audit.log"))
		if err != nil {
			return err
		}
		defer in.Close()
		if err := os.MkdirAll(filepath.Join(e.dir, cluster), 0o700); err != nil {
			return err
		}
		out, err := os.Create(filepath.Join(e.dir, cluster, "audit.log"))
		if err != nil {
			return err
		}
		_, err = io.Copy(out, io.NewSectionReader(in, size, math.MaxInt64-size))
		if err := errors.Join(err, out.Close()); err != nil {
			return err
		}
	}
	return nil
}
