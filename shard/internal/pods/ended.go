package pods

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/tenure-dev/tenure/shard/internal/ownership"
	"github.com/tenure-dev/tenure/shard/protocol"
)

// message is what an incarnation leaves in its termination log. A kubelet passes on the last 4096 bytes, and fewer if a
// Pod has more than three containers. A truncated message isn't valid JSON, and so names no incarnation.
type message struct {
	Incarnation protocol.Incarnation `json:"tenure.dev/incarnation"`
}

// Log writes the name of a new incarnation into the container's termination log, in place of the previous one's. It
// overwrites the file in place, since the container runtime mounts it and it can't be replaced. All names of one
// process have the same length, so a single write replaces the content. A process that dies before the truncation
// leaves a message that names no incarnation.
func Log(path string, id protocol.Incarnation) error {
	text, err := json.Marshal(message{id})
	if err != nil {
		return fmt.Errorf("termination log: %w", err)
	}
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("termination log: %w", err)
	}
	_, err = file.WriteAt(text, 0)
	if err := errors.Join(err, file.Truncate(int64(len(text))), file.Close()); err != nil {
		return fmt.Errorf("termination log: %w", err)
	}
	return nil
}

// Ended returns the containers of a Pod in which incarnations have run and ended, as its kubelet reports: a container's
// present termination, and the one before its last restart.
func Ended(pod *corev1.Pod) []ownership.ContainerSeen {
	var all []ownership.ContainerSeen
	for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		// The UID distinguishes the Pod from others of its name. A restart of the container doesn't change the name.
		seen := ownership.ContainerSeen{
			Container: strings.Join([]string{pod.Namespace, pod.Name, string(pod.UID), c.Name}, "/"),
		}
		for _, end := range []*corev1.ContainerStateTerminated{c.State.Terminated, c.LastTerminationState.Terminated} {
			if id := named(end); id != "" {
				seen.Ended = append(seen.Ended, id)
			}
		}
		if len(seen.Ended) > 0 {
			all = append(all, seen)
		}
	}
	return all
}

// named returns the incarnation that a container's termination names; "" if none. A kubelet that has lost track of a
// container also calls it terminated, but gives no container ID then.
func named(end *corev1.ContainerStateTerminated) protocol.Incarnation {
	if end == nil || end.ContainerID == "" {
		return ""
	}
	var m message
	if json.Unmarshal([]byte(end.Message), &m) != nil {
		return ""
	}
	return m.Incarnation
}
