// Package audittest writes audit logs for tests.
package audittest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenure-dev/tenure/bench/audit"
)

// Line writes an event as an API server does. Without a stage it is a complete response, without a second time it took
// none, and without a decision it was allowed.
func Line(e audit.Event) string {
	e.Completed = cmp.Or(e.Completed, e.Received)
	ref := map[string]any{"resource": e.Resource, "namespace": e.Namespace, "name": e.Name, "apiVersion": "v1"}
	for k, v := range map[string]string{"apiGroup": e.Group, "subresource": e.Subresource, "uid": e.UID,
		"resourceVersion": version(e.Base)} {
		if v != "" {
			ref[k] = v
		}
	}
	line := map[string]any{
		"kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": "Metadata", "auditID": "6a7b",
		"stage": cmp.Or(e.Stage, "ResponseComplete"), "requestURI": cmp.Or(e.URI, "/apis/x?fieldManager=tenure"),
		"verb": e.Verb, "user": map[string]any{"username": e.User, "groups": []string{"system:masters"}},
		"sourceIPs": []string{"127.0.0.1"}, "userAgent": e.UserAgent, "objectRef": ref,
		"responseStatus":           map[string]any{"metadata": map[string]any{}, "code": e.Code, "message": e.Message},
		"requestReceivedTimestamp": metav1.NewMicroTime(e.Arrived()), "stageTimestamp": metav1.NewMicroTime(e.Answered()),
		"annotations": map[string]any{"authorization.k8s.io/decision": cmp.Or(e.Decision, "allow"),
			"authorization.k8s.io/reason": cmp.Or(e.Reason, `by "role" {x}`)},
	}
	if e.Body != nil {
		line["responseObject"] = body(e.Body)
	}
	text, err := json.Marshal(line)
	if err != nil {
		panic(err)
	}
	return string(text) + "\n"
}

func version(v uint64) string {
	if v == 0 {
		return ""
	}
	return strconv.FormatUint(v, 10)
}

func body(b *audit.Body) map[string]any {
	meta := map[string]any{"uid": b.UID, "resourceVersion": fmt.Sprint(b.ResourceVersion)}
	if b.SealedBy != "" {
		meta["annotations"] = map[string]any{"tenure.dev/sealed-by": b.SealedBy}
	}
	status := map[string]any{"phase": b.Phase}
	spec := map[string]any{"schedule": b.Schedule}
	if s := b.Shard; s != nil {
		spec = map[string]any{"cluster": s.Cluster, "prefix": s.Prefix, "assignee": s.Assignee}
		status = map[string]any{"holder": s.Holder, "warm": s.Warm, "phase": s.Phase, "epoch": s.Epoch,
			"lastMove": map[string]any{"kind": s.Move}}
	}
	return map[string]any{"metadata": meta, "spec": spec, "status": status}
}
