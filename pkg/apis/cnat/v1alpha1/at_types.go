package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// At runs a command once, at a given time. A Pod that is deleted before its end was
// seen is made again, so the command must be safe to run twice.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=ats,singular=at,shortName=cnat,scope=Namespaced,categories=all;tenure
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Schedule",type=string,JSONPath=`.spec.schedule`
// +kubebuilder:printcolumn:name="Result",type=string,JSONPath=`.status.result`
// +kubebuilder:printcolumn:name="Pod",type=string,JSONPath=`.status.podName`
// +kubebuilder:printcolumn:name="Blocked",type=string,JSONPath=`.status.conditions[?(@.type=="Blocked")].reason`
// +kubebuilder:printcolumn:name="Exit",type=integer,JSONPath=`.status.exitCode`,priority=1
// +kubebuilder:printcolumn:name="Restarts",type=integer,JSONPath=`.status.restarts`,priority=1
// +kubebuilder:printcolumn:name="Started",type=string,JSONPath=`.status.startTime`,priority=1
// +kubebuilder:printcolumn:name="Finished",type=string,JSONPath=`.status.finishTime`,priority=1
// +kubebuilder:printcolumn:name="Epoch",type=integer,JSONPath=`.status.epoch`,priority=1
// +kubebuilder:printcolumn:name="Command",type=string,JSONPath=`.spec.command`,priority=1
// +kubebuilder:selectablefield:JSONPath=`.status.phase`
// +kubebuilder:selectablefield:JSONPath=`.status.over`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="oldSelf.status.phase == 'PENDING' || (self.spec.schedule == oldSelf.spec.schedule && self.spec.command == oldSelf.spec.command && self.spec.image == oldSelf.spec.image && self.spec.?startingDeadlineSeconds.orValue(-1) == oldSelf.spec.?startingDeadlineSeconds.orValue(-1) && self.spec.?activeDeadlineSeconds.orValue(-1) == oldSelf.spec.?activeDeadlineSeconds.orValue(-1) && self.spec.?automountServiceAccountToken.orValue(false) == oldSelf.spec.?automountServiceAccountToken.orValue(false) && has(self.spec.serviceAccountName) == has(oldSelf.spec.serviceAccountName) && (!has(self.spec.serviceAccountName) || self.spec.serviceAccountName == oldSelf.spec.serviceAccountName) && has(self.spec.resources) == has(oldSelf.spec.resources) && has(self.spec.securityContext) == has(oldSelf.spec.securityContext) && (!has(self.spec.securityContext) || self.spec.securityContext == oldSelf.spec.securityContext))",message="spec is immutable once the At is RUNNING or DONE (only suspend and ttlSecondsAfterFinished may change)"
// +kubebuilder:validation:XValidation:rule="oldSelf.status.phase == 'PENDING' || !has(self.spec.resources) || !has(oldSelf.spec.resources) || (size(self.spec.resources.?requests.orValue({})) == size(oldSelf.spec.resources.?requests.orValue({})) && (!has(self.spec.resources.requests) || self.spec.resources.requests.all(name, name in oldSelf.spec.resources.?requests.orValue({}) && (type(self.spec.resources.requests[name]) == int ? quantity('0').add(self.spec.resources.requests[name]) : quantity(self.spec.resources.requests[name])).compareTo(type(oldSelf.spec.resources.requests[name]) == int ? quantity('0').add(oldSelf.spec.resources.requests[name]) : quantity(oldSelf.spec.resources.requests[name])) == 0)))",message="spec.resources.requests is immutable once the At is RUNNING or DONE"
// +kubebuilder:validation:XValidation:rule="oldSelf.status.phase == 'PENDING' || !has(self.spec.resources) || !has(oldSelf.spec.resources) || (size(self.spec.resources.?limits.orValue({})) == size(oldSelf.spec.resources.?limits.orValue({})) && (!has(self.spec.resources.limits) || self.spec.resources.limits.all(name, name in oldSelf.spec.resources.?limits.orValue({}) && (type(self.spec.resources.limits[name]) == int ? quantity('0').add(self.spec.resources.limits[name]) : quantity(self.spec.resources.limits[name])).compareTo(type(oldSelf.spec.resources.limits[name]) == int ? quantity('0').add(oldSelf.spec.resources.limits[name]) : quantity(oldSelf.spec.resources.limits[name])) == 0)))",message="spec.resources.limits is immutable once the At is RUNNING or DONE"
// +kubebuilder:validation:XValidation:rule="!oldSelf.status.?over.orValue(false) || self.spec.?ttlSecondsAfterFinished.orValue(-1) == oldSelf.spec.?ttlSecondsAfterFinished.orValue(-1)",message="an At that has ended without a time to live gets none any more: delete it"
type At struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says what runs, and when.
	// +required
	Spec AtSpec `json:"spec"`

	// status says what has happened so far. Only the controller writes it.
	// +optional
	// +kubebuilder:default={}
	Status AtStatus `json:"status,omitempty"`
}

// AtSpec says what runs, and when.
type AtSpec struct {
	// The rule for schedule bounds no offset, takes anything for the dot before a fraction, and ignores what follows a
	// second "t"; hence the pattern. With the format date-time, which does the same, rules that compare schedules would
	// parse them, and fail at lower case: no write to the At would succeed any more. Where a rule has optionalOldSelf, a
	// stored value that it refuses may stay: API servers of version 1.32 would refuse each write of the status instead.

	// schedule is the time at which the command runs: RFC 3339, best in UTC, for
	// example "2019-04-12T10:12:00Z". A time in the past means at once. Fractions
	// of a second count. The clock is that of the replica that serves the At.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[0-9-]+[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}([.,][0-9]+)?([Zz]|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$`
	// +kubebuilder:validation:XValidation:optionalOldSelf=true,rule="oldSelf.orValue('') == self || !format.datetime().validate(self).hasValue()",message="must be a day and a time of day that exist, by RFC 3339, such as 2019-04-12T10:12:00Z"
	Schedule string `json:"schedule"`

	// command is run by a shell ("/bin/sh -c") in the only container of a Pod.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=32768
	// +kubebuilder:validation:XValidation:optionalOldSelf=true,rule="oldSelf.orValue('') == self || size(bytes(self)) < 131072",message="must have at most 131071 bytes: Linux takes no longer argument"
	Command string `json:"command"`

	// image is the container image that the command runs in. It must hold a /bin/sh.
	// +optional
	// +kubebuilder:default=busybox
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^\S+$`
	Image string `json:"image,omitempty"`

	// startingDeadlineSeconds is how late the command may still start. When that
	// has passed (say the cluster was away), the At is DONE with the result Missed
	// and nothing runs. A suspended At is judged when it is resumed. The deadline is
	// for the first start: a run that is claimed again (status.restarts) may start
	// later. A start takes a moment, so allow some seconds. Without a deadline, late
	// is never too late.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:XValidation:rule="self >= 0",message="must be a whole number"
	StartingDeadlineSeconds *int64 `json:"startingDeadlineSeconds,omitempty"`

	// activeDeadlineSeconds is how long the Pod may take from when its node took it.
	// The node ends one that takes longer, and the At has failed. Without it, the
	// fleet's default holds, which is no limit unless it was given one.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=2147483647
	// +kubebuilder:validation:XValidation:rule="self >= 0",message="must be a whole number"
	ActiveDeadlineSeconds *int64 `json:"activeDeadlineSeconds,omitempty"`

	// serviceAccountName is the service account that the Pod runs as. Without it,
	// the fleet's default holds, or else the namespace's account "default".
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Subdomain().validate(self).hasValue()",message="must be the name of a service account: lower case letters, digits, '-' and '.'"
	ServiceAccountName string `json:"serviceAccountName,omitempty"`

	// automountServiceAccountToken gives the command the token of its service
	// account. Without it, the command gets none.
	// +optional
	AutomountServiceAccountToken bool `json:"automountServiceAccountToken,omitempty"`

	// resources are what the command asks for and may use at most. A resource that
	// isn't named here has the fleet's default, so that a namespace with a
	// ResourceQuota takes the Pod.
	// +optional
	Resources *AtResources `json:"resources,omitempty"`

	// securityContext says as whom and with which rights the command runs. A field
	// that isn't set has the fleet's default, unless that contradicts one that is
	// set. The defaults pass the Pod Security level "restricted" unless the fleet
	// was told otherwise. The namespace's own Pod Security decides what is accepted.
	// +optional
	SecurityContext *AtSecurityContext `json:"securityContext,omitempty"`

	// suspend holds back the making of a Pod while it is true. A Pod that is
	// there already runs on.
	// +optional
	Suspend bool `json:"suspend,omitempty"`

	// ttlSecondsAfterFinished deletes the At, and with it its Pod, so many
	// seconds after status.finishTime. Without it, the At stays.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2147483647
	// +kubebuilder:validation:XValidation:rule="self >= 0",message="must be a whole number"
	TTLSecondsAfterFinished *int32 `json:"ttlSecondsAfterFinished,omitempty"`
}

// An API server bounds what a rule may cost at worst: 15 entries is the most of which each request can be compared with
// its limit, or before a write with after it. For the same reason an integer becomes a quantity by add here: string
// would double the cost.

// AtResources are the resources of an At's only container, in the words of Pods.
// +kubebuilder:validation:XValidation:rule="!has(self.requests) || self.requests.all(name, !(name.contains('/') || name.startsWith('hugepages-')) || (has(self.limits) && name in self.limits))",message="what can't be shared, such as example.com/gpu or hugepages-2Mi, needs a limit"
// +kubebuilder:validation:XValidation:rule="!has(self.requests) || !has(self.limits) || ['cpu', 'memory', 'ephemeral-storage'].all(name, !(name in self.requests) || !(name in self.limits) || quantity(string(self.requests[name])).compareTo(quantity(string(self.limits[name]))) <= 0)",message="no request is above its limit"
// +kubebuilder:validation:XValidation:rule="!has(self.requests) || !has(self.limits) || self.requests.all(name, name in ['cpu', 'memory', 'ephemeral-storage'] || !(name in self.limits) || (type(self.requests[name]) == int ? quantity('0').add(self.requests[name]) : quantity(self.requests[name])).compareTo(type(self.limits[name]) == int ? quantity('0').add(self.limits[name]) : quantity(self.limits[name])) == 0)",message="what can't be shared, such as example.com/gpu or hugepages-2Mi, has a request that equals its limit"
type AtResources struct {
	// requests are what a node must have free.
	// +optional
	// +kubebuilder:validation:MaxProperties=15
	// +kubebuilder:validation:XValidation:rule="self.all(name, size(name) <= 253 && size(string(self[name])) <= 64)",message="a resource's name has at most 253 characters, a quantity 64"
	// +kubebuilder:validation:XValidation:rule="self.all(name, !string(self[name]).startsWith('-'))",message="no quantity is negative"
	// +kubebuilder:validation:XValidation:rule="self.all(name, name in ['cpu', 'memory', 'ephemeral-storage'] || name.startsWith('hugepages-') || name.contains('/'))",message="a resource is cpu, memory, ephemeral-storage, hugepages-SIZE, or one such as example.com/gpu"
	// +kubebuilder:validation:XValidation:rule="self.all(name, name in ['cpu', 'memory', 'ephemeral-storage'] || name.startsWith('hugepages-') || type(self[name]) == int || quantity(self[name]).isInteger())",message="what is counted, such as example.com/gpu, has a whole number"
	Requests map[corev1.ResourceName]resource.Quantity `json:"requests,omitempty"`

	// limits are what the container may use at most.
	// +optional
	// +kubebuilder:validation:MaxProperties=15
	// +kubebuilder:validation:XValidation:rule="self.all(name, size(name) <= 253 && size(string(self[name])) <= 64)",message="a resource's name has at most 253 characters, a quantity 64"
	// +kubebuilder:validation:XValidation:rule="self.all(name, !string(self[name]).startsWith('-'))",message="no quantity is negative"
	// +kubebuilder:validation:XValidation:rule="self.all(name, name in ['cpu', 'memory', 'ephemeral-storage'] || name.startsWith('hugepages-') || name.contains('/'))",message="a resource is cpu, memory, ephemeral-storage, hugepages-SIZE, or one such as example.com/gpu"
	// +kubebuilder:validation:XValidation:rule="self.all(name, name in ['cpu', 'memory', 'ephemeral-storage'] || name.startsWith('hugepages-') || type(self[name]) == int || quantity(self[name]).isInteger())",message="what is counted, such as example.com/gpu, has a whole number"
	Limits map[corev1.ResourceName]resource.Quantity `json:"limits,omitempty"`
}

// AtSecurityContext is the part of a container's security context that an At can
// choose. It has the names and the meaning of the fields of Pods.
//
// +kubebuilder:validation:XValidation:rule="!self.?privileged.orValue(false) || self.?allowPrivilegeEscalation.orValue(true)",message="a privileged command can't be kept from gaining rights: allowPrivilegeEscalation must not be false"
// +kubebuilder:validation:XValidation:rule="!self.?runAsNonRoot.orValue(false) || self.?runAsUser.orValue(1) != 0",message="runAsUser 0 is root, so runAsNonRoot must not be true: no node would start the command"
type AtSecurityContext struct {
	// runAsUser is the numeric user of the command.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2147483647
	// +kubebuilder:validation:XValidation:rule="self >= 0",message="must be a whole number"
	RunAsUser *int64 `json:"runAsUser,omitempty"`

	// runAsGroup is the numeric group of the command.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2147483647
	// +kubebuilder:validation:XValidation:rule="self >= 0",message="must be a whole number"
	RunAsGroup *int64 `json:"runAsGroup,omitempty"`

	// runAsNonRoot has the node refuse to run the command as root.
	// +optional
	RunAsNonRoot *bool `json:"runAsNonRoot,omitempty"`

	// readOnlyRootFilesystem keeps the command from writing into its image's files.
	// +optional
	ReadOnlyRootFilesystem *bool `json:"readOnlyRootFilesystem,omitempty"`

	// allowPrivilegeEscalation lets the command gain more rights than it was started with.
	// +optional
	AllowPrivilegeEscalation *bool `json:"allowPrivilegeEscalation,omitempty"`

	// privileged runs the command as if it were the node's own.
	// +optional
	Privileged *bool `json:"privileged,omitempty"`

	// capabilities are added to and dropped from those that the container runtime grants.
	// +optional
	Capabilities *AtCapabilities `json:"capabilities,omitempty"`

	// seccompProfile restricts the system calls of the command.
	// +optional
	SeccompProfile *AtSeccompProfile `json:"seccompProfile,omitempty"`
}

// AtCapabilities are POSIX capabilities to add and to drop.
type AtCapabilities struct {
	// add are capabilities that the command gets, without the prefix CAP_.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=64
	// +kubebuilder:validation:items:XValidation:rule="!self.startsWith('CAP_')",message="name the capability without the prefix CAP_"
	Add []string `json:"add,omitempty"`

	// drop are capabilities that are taken from the command; ALL stands for all of them.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=64
	// +kubebuilder:validation:items:XValidation:rule="!self.startsWith('CAP_')",message="name the capability without the prefix CAP_"
	Drop []string `json:"drop,omitempty"`
}

// AtSeccompProfile names a seccomp profile.
//
// +kubebuilder:validation:XValidation:rule="(self.type == 'Localhost') == has(self.localhostProfile)",message="localhostProfile goes with the type Localhost, and with no other"
type AtSeccompProfile struct {
	// type is RuntimeDefault, Unconfined, or Localhost for a file on the node.
	// +required
	// +kubebuilder:validation:Enum=RuntimeDefault;Unconfined;Localhost
	Type corev1.SeccompProfileType `json:"type"`

	// localhostProfile is that file, below the node's folder of seccomp profiles.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:XValidation:rule="!self.startsWith('/') && !('..' in self.split('/'))",message="must be a path below that folder: no '/' in front, and no part is '..'"
	LocalhostProfile *string `json:"localhostProfile,omitempty"`
}

// AtPhase is how far an At has come. It only goes forward.
// +kubebuilder:validation:Enum=PENDING;RUNNING;DONE
type AtPhase string

const (
	// AtPending means that the time hasn't come yet, or that something holds the start back.
	AtPending AtPhase = "PENDING"
	// AtRunning means that the run is claimed: the Pod is being made, or is there.
	AtRunning AtPhase = "RUNNING"
	// AtDone means that nothing will run any more.
	AtDone AtPhase = "DONE"
)

// AtResult is how an At ended.
// +kubebuilder:validation:Enum=Succeeded;Failed;Missed
type AtResult string

const (
	// AtSucceeded means that the command ended with exit code 0.
	AtSucceeded AtResult = "Succeeded"
	// AtFailed means that the Pod failed.
	AtFailed AtResult = "Failed"
	// AtMissed means that startingDeadlineSeconds passed before the start; nothing ran.
	AtMissed AtResult = "Missed"
)

// Types of the conditions of an At.
const (
	// ConditionBlocked is True while something outside keeps the At from its next
	// step. Its reason says what.
	ConditionBlocked = "Blocked"
	// ConditionComplete is True once the command has succeeded.
	ConditionComplete = "Complete"
	// ConditionFailed is True once the At has ended without success.
	ConditionFailed = "Failed"
)

// AtStatus says what has happened so far.
type AtStatus struct {
	// phase is PENDING until the time has come, RUNNING from the claim of the run
	// until its Pod has finished, then DONE.
	// +optional
	// +kubebuilder:default=PENDING
	// +kubebuilder:validation:XValidation:rule="self == oldSelf || oldSelf == 'PENDING' || (oldSelf == 'RUNNING' && self == 'DONE')",message="phase only goes forward: PENDING, RUNNING, DONE"
	Phase AtPhase `json:"phase,omitempty"`

	// epoch is that of the tenure that last wrote the status; 0 without sharding.
	// It never falls, so the API server refuses what an earlier tenure still sends.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:XValidation:rule="self >= oldSelf",message="epoch never falls: the writer's tenure is over"
	Epoch int64 `json:"epoch,omitempty"`

	// traceID is the trace of the last reconcile that wrote the status and was
	// traced. It says nothing about the At itself.
	// +optional
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{32}$`
	TraceID string `json:"traceID,omitempty"`

	// podName is the name of the Pod that runs the command.
	// +optional
	PodName string `json:"podName,omitempty"`

	// result is how the At ended.
	// +optional
	Result AtResult `json:"result,omitempty"`

	// exitCode is that of the command, where it is known.
	// +optional
	// +kubebuilder:validation:Minimum=-2147483648
	// +kubebuilder:validation:Maximum=2147483647
	ExitCode *int32 `json:"exitCode,omitempty"`

	// restarts is how often the run was claimed again because no Pod was there: it
	// was deleted before it had been seen to finish, or the replica that had claimed
	// the run died before making it, or got no clear answer, or another replica took
	// over while its Pod was refused.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2147483647
	Restarts int32 `json:"restarts,omitempty"`

	// scheduledTime is spec.schedule as it was understood, in UTC.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{6}(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$`
	ScheduledTime *metav1.MicroTime `json:"scheduledTime,omitempty"`

	// startTime is when the run was claimed, just before the Pod was made. A missed
	// At has none.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{6}(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$`
	StartTime *metav1.MicroTime `json:"startTime,omitempty"`

	// finishTime is when the command ended or, for a missed At, when that was
	// found out.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{6}(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$`
	FinishTime *metav1.MicroTime `json:"finishTime,omitempty"`

	// over says that the controller will never look at the At again: it is DONE and
	// had no time to live when it ended. Controllers and others that care for what
	// is still to be done leave such Ats out of what they watch, with the field
	// selector status.over!=true.
	// +optional
	Over bool `json:"over,omitempty"`

	// conditions are Blocked (something outside keeps the At from its next step),
	// Complete (the command succeeded) and Failed (it ended otherwise).
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// AtList is a list of Ats.
//
// +kubebuilder:object:root=true
type AtList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []At `json:"items"`
}

// StampTrace sets status.traceID. A client that traces calls it on what it sends.
func (at *At) StampTrace(id string) { at.Status.TraceID = id }

// WrittenInTrace returns status.traceID.
func (at *At) WrittenInTrace() string { return at.Status.TraceID }

// StampEpoch raises status.epoch to epoch and returns what it was before. It
// never lowers it. A client that writes on behalf of a tenure calls it on what
// it sends, and doesn't send an object that shows a higher epoch than its own:
// that was written by a later tenure.
func (at *At) StampEpoch(epoch int64) (before int64) {
	before = at.Status.Epoch
	at.Status.Epoch = max(before, epoch)
	return before
}
