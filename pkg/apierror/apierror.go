// Package apierror reads the errors that API servers answer with.
package apierror

import (
	"errors"
	"strings"

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

// IsDenial reports whether a webhook has denied the request. It chooses the code of the answer itself, so the code says
// nothing.
func IsDenial(err error) bool {
	return Code(err) != 0 && strings.Contains(err.Error(), `admission webhook "`) &&
		strings.Contains(err.Error(), "denied the request")
}
