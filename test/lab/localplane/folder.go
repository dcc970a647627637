package localplane

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

const (
	// temporaryPrefix marks folders that may be removed once nobody holds their lock.
	temporaryPrefix = "tenure-planes-"
	lockName        = "lock"
	sharedMem       = "/dev/shm"
)

// folder is a directory that this process holds: the lock inside is released by the kernel when the process ends,
// however it ends, so leftovers of a killed process can be told from folders in use.
type folder struct {
	path   string
	lock   *os.File
	remove bool
}

// openFolder takes the named folder, or makes a new one below parent.
func openFolder(named, parent string) (*folder, error) {
	path, err := named, error(nil)
	if named != "" {
		if path, err = filepath.Abs(named); err == nil {
			err = os.MkdirAll(path, 0o700)
		}
	} else {
		path, err = os.MkdirTemp(parent, temporaryPrefix)
	}
	if err != nil {
		return nil, fmt.Errorf("making a folder for the control planes: %w", withHint(err))
	}
	f := &folder{path: path, remove: named == ""}
	if f.lock, err = lockFolder(path); err != nil {
		return nil, fmt.Errorf("taking the folder %s: %w", path, err)
	}
	return f, nil
}

// TempDir makes a temporary folder, which remove takes away again. If this process is killed first, the next start of
// control planes does.
func TempDir() (path string, remove func() error, err error) {
	f, err := openFolder("", "")
	if err != nil {
		return "", nil, err
	}
	return f.path, f.close, nil
}

// lockFolder locks path/lock. A new lock file appears under its name only once it is locked: whoever finds one
// unlocked knows that its owner is dead, and not merely about to lock it.
func lockFolder(path string) (*os.File, error) {
	fresh, err := os.CreateTemp(path, lockName)
	if err != nil {
		return nil, withHint(err)
	}
	defer os.Remove(fresh.Name())
	err = flock(fresh)
	if err == nil {
		err = os.Link(fresh.Name(), filepath.Join(path, lockName))
	}
	if errors.Is(err, os.ErrExist) {
		err = errors.New("other control planes run in it, or did: name another folder")
	}
	if err != nil {
		return nil, errors.Join(err, fresh.Close())
	}
	return fresh, nil
}

// flock takes the lock or fails at once.
func flock(file *os.File) error {
	return syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
}

// close gives the folder up, and removes it if it was a temporary one.
func (f *folder) close() error {
	if f == nil {
		return nil
	}
	var err error
	if f.remove {
		err = os.RemoveAll(f.path)
	}
	return errors.Join(err, f.lock.Close())
}

// sweep removes temporary folders below parent whose owner was killed. What cannot be removed stays: it is
// somebody else's, or the next start tries again.
func sweep(parent string) {
	locks, _ := filepath.Glob(filepath.Join(parent, temporaryPrefix+"*", lockName))
	for _, lockPath := range locks {
		file, err := os.OpenFile(lockPath, os.O_RDWR, 0o600)
		if err != nil {
			continue
		}
		if flock(file) == nil {
			_ = os.RemoveAll(filepath.Dir(lockPath))
		}
		file.Close()
	}
}
