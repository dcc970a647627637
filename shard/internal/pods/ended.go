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

// Container names one container of one Pod, for good: the UID tells the Pod from others of its name. Restarts don't
// change it.
func Container(namespace, pod, uid, container string) string {
	return strings.Join([]string{namespace, pod, uid, container}, "/")
}

// message is what an incarnation leaves in its termination log. A kubelet passes on the last 4096 bytes, and less where a
// Pod has more than three containers. What was cut short isn't JSON any more, and so names nobody.
type message struct {
	Incarnation protocol.Incarnation `json:"tenure.dev/incarnation"`
}

// Log writes the name of the incarnation that begins into the container's termination log, in place of the last one's.
// The container runtime mounts that file, so it can't be replaced by another. Names of one process are of one length, so
// that one write replaces the content; whoever dies in between leaves a message that names nobody.
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
	return errors.Join(err, file.Truncate(int64(len(text))), file.Close())
}

// Ended lists the containers of a Pod in which incarnations have run and have ended, as its kubelet reports: the present
// end of a container, and the last one before a restart.
func Ended(pod *corev1.Pod) []ownership.ContainerSeen {
	var all []ownership.ContainerSeen
	for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		seen := ownership.ContainerSeen{Container: Container(pod.Namespace, pod.Name, string(pod.UID), c.Name)}
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

// named returns whom a container's end names, "" for nobody. A kubelet that has lost track of a container calls it
// terminated, too, but then there is no ID of it.
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
