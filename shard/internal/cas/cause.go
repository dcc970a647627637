package cas

import (
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/tenure-dev/tenure/pkg/apierror"
	"github.com/tenure-dev/tenure/shard/internal/ownership"
)

// Cause classifies the error of a write or read by what can be done about it.
func Cause(err error) ownership.Cause {
	switch code := apierror.Code(err); {
	case code == 0, ByProxy(err):
		return ownership.Lost
	case code == http.StatusConflict, code == http.StatusNotFound:
		return ownership.Conflict
	case code == http.StatusTooManyRequests:
		return ownership.Overloaded
	case code >= http.StatusInternalServerError:
		return ownership.Failed
	}
	return ownership.Refused
}

// NotFound reports whether the API server says that an object doesn't exist.
func NotFound(err error) bool { return apierrors.IsNotFound(err) && !ByProxy(err) }

// ByProxy reports whether a refusal isn't the API server's own: it doesn't come as a Status. An ingress that reloads
// answers 404 to everything for a moment, and no record has gone because of that. (An API server that has too much to
// do answers 429 without a Status.)
func ByProxy(err error) bool {
	code := apierror.Code(err)
	return apierrors.IsUnexpectedServerError(err) &&
		code < http.StatusInternalServerError && code != http.StatusTooManyRequests
}
