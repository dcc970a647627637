// Package pods lets kubelets prove that incarnations have ended.
//
// An incarnation that runs in a Pod writes its name into its container's termination log when it begins ([Log]).
// However the container ends, even by SIGKILL or out of memory, its kubelet copies that file into the Pod's status.
// [Ended] reads it there, and [Watch] follows the Pods. The package decides nothing: package ownership draws the
// conclusions, and shard/DESIGN.md says why this is proof. Package shard is its caller.
package pods
