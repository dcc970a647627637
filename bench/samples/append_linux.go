package samples

import (
	"io"
	"os"
	"syscall"
	"unsafe"
)

// appendTo writes to the page cache, and doesn't tell Go's scheduler of the system call: telling it wakes the runtime's
// monitor thread in a process that was idle, which would be measured as the replica's own processor time.
func appendTo(file *os.File, record []byte) error {
	raw, err := file.SyscallConn()
	if err != nil {
		return err
	}
	var n uintptr
	var errno syscall.Errno
	err = raw.Control(func(fd uintptr) {
		n, _, errno = syscall.RawSyscall(syscall.SYS_WRITE, fd, uintptr(unsafe.Pointer(unsafe.SliceData(record))),
			uintptr(len(record)))
	})
	switch {
	case err != nil:
		return err
	case errno != 0:
		return os.NewSyscallError("write", errno)
	case int(n) < len(record):
		return io.ErrShortWrite
	}
	return nil
}
