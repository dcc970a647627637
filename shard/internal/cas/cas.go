package cas

import (
	"encoding/json"
	"fmt"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-dev/tenure/shard/internal/ownership"
	"github.com/tenure-dev/tenure/shard/protocol"
)

// Outcome classifies the error of a write that carries a resourceVersion (or creates a named object). Only answers that
// the API server gives before it commits anything count as rejected. A timeout, a lost connection or a server error may
// hide a commit, and what a proxy answers says nothing.
func Outcome(err error) protocol.Outcome {
	switch {
	case err == nil:
		return protocol.Committed
	case ByProxy(err):
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err), apierrors.IsNotFound(err), apierrors.IsInvalid(err),
		apierrors.IsBadRequest(err), apierrors.IsForbidden(err), apierrors.IsMethodNotSupported(err):
		return protocol.Rejected
	}
	return protocol.Unknown
}

// Version parses a resourceVersion. Since Kubernetes 1.35 (KEP-5504) resourceVersions are ordered decimal numbers by
// contract; before that they were in practice, on every API server backed by etcd.
func Version(resourceVersion string) (ownership.Version, error) {
	v, err := strconv.ParseUint(resourceVersion, 10, 64)
	if err != nil || v == 0 {
		return 0, fmt.Errorf("resourceVersion %q: the home cluster's API server must number versions in order (KEP-5504)",
			resourceVersion)
	}
	return ownership.Version(v), nil
}

// Floor parses an epoch floor, as annotations of records state it; "" is 0.
func Floor(text string) (ownership.Epoch, error) {
	if text == "" {
		return 0, nil
	}
	floor, err := strconv.ParseInt(text, 10, 64)
	if err != nil || floor < 0 || ownership.Epoch(floor) > ownership.MaxFloor {
		return 0, fmt.Errorf("%q isn't a number from 0 to %d", text, ownership.MaxFloor)
	}
	return ownership.Epoch(floor), nil
}

// Merge returns a merge patch of one version of an object. The API server refuses it if the object has changed since.
// Merge adds the version to the fields' metadata.
func Merge(base ownership.Version, fields map[string]any) client.Patch {
	metadata, _ := fields["metadata"].(map[string]any)
	if metadata == nil {
		metadata = map[string]any{}
		fields["metadata"] = metadata
	}
	metadata["resourceVersion"] = strconv.FormatUint(uint64(base), 10)
	return merge(fields)
}

type merge map[string]any

func (merge) Type() types.PatchType                { return types.MergePatchType }
func (m merge) Data(client.Object) ([]byte, error) { return json.Marshal(m) }
