// Package pods is how incarnations that run in Pods let their kubelets prove that they have ended.
//
// An incarnation writes its name into its container's termination log when it begins ([Log]). However the container ends,
// by SIGKILL or for want of memory too, its kubelet puts the content of that file into the Pod's status, and [Ended] reads
// it there. [Watch] follows the Pods. It decides nothing; see package ownership for what is concluded, and the protocol's
// design for why that is proof.
package pods
