// Package apierror reads the errors that API servers answer with.
package apierror

import (
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Code returns the HTTP code of an API server's answer, 0 for an error that is none.
func Code(err error) int {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return 0
	}
	return int(status.Status().Code)
}
