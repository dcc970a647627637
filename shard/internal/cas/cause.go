package cas

import (
	"errors"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/tenure-dev/tenure/shard/internal/ownership"
)

// Cause classifies the error of a write or read by what can be done about it.
func Cause(err error) ownership.Cause {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return ownership.Lost
	}
	switch code := status.Status().Code; {
	case code == http.StatusConflict, code == http.StatusNotFound:
		return ownership.Conflict
	case code == http.StatusTooManyRequests:
		return ownership.Overloaded
	case code >= http.StatusInternalServerError:
		return ownership.Failed
	}
	return ownership.Refused
}
