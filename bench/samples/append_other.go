//go:build !linux

package samples

import "os"

func appendTo(file *os.File, record []byte) error {
	_, err := file.Write(record)
	return err
}
