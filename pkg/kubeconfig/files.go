package kubeconfig

import (
	"fmt"
	"path/filepath"
)

// beside returns the absolute path of what a kubeconfig names. A relative path is beside the kubeconfig's own file, as
// for kubectl; ok is false if no file holds the kubeconfig.
func (i *inspection) beside(path string) (absolute string, ok bool) {
	if filepath.IsAbs(path) {
		return path, true
	}
	folder, err := filepath.Abs(filepath.Dir(i.path))
	if i.path == "" || err != nil {
		return path, false
	}
	return filepath.Join(folder, path), true
}

// file inspects a field that names a file, and returns the file's absolute path and content; nil if the field isn't set
// or is refused. The file is read here first since client-go would wait for a pipe, and read a device without end.
func (i *inspection) file(field, path, instead string) (absolute string, content []byte) {
	i.only(i.policy.Files, path != "", field, instead, allowFiles)
	i.bounded(field, len(path), maxField)
	if path == "" || !i.policy.Files || len(path) > maxField {
		return path, nil
	}
	path, ok := i.beside(path)
	if !ok {
		i.refuse("%s must be an absolute path", field)
		return path, nil
	}
	content, err := read(path, maxFile)
	if err == nil && len(content) > maxFile {
		err = fmt.Errorf("it has more than %d bytes", maxFile)
	}
	if err != nil {
		i.passing++
		i.refuse("%s names a file that can't be used: %v", field, err) // err names no path
		return path, nil
	}
	return path, content
}

// namesFiles reports whether credentials or certificates are in files.
func (a *Access) namesFiles() bool {
	for _, c := range a.config.Clusters {
		if c.CertificateAuthority != "" {
			return true
		}
	}
	for _, u := range a.config.AuthInfos {
		if u.TokenFile+u.ClientCertificate+u.ClientKey != "" {
			return true
		}
	}
	return false
}
