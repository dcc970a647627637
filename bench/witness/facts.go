package witness

import (
	"encoding/json"
	"fmt"
	"time"
)

// Facts are what the judge may need beyond the logs: at level Metadata an At's schedule isn't in them.
type Facts struct {
	Ats []At
}

// At is one At as its API server, or its maker, knows it.
type At struct {
	Cluster   string `json:"cluster"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid,omitempty"`
	Schedule  string `json:"schedule"`
	Phase     string `json:"phase,omitempty"`
}

// Rules are the tolerances of a judgement. The zero value is strict.
type Rules struct {
	// Skew is by how much the clocks of two API servers may differ. It is granted wherever times from two of them,
	// or a time and a schedule, are compared. On one machine leave it at zero.
	Skew time.Duration
	// Settle is how long an At may be due at the end of the logs without being served before it counts as lost.
	Settle time.Duration
	// MaxListed is how many violations of one kind the report lists; all are counted. Zero means 20.
	MaxListed int
}

// ParseAts reads a list of Ats: either {"ats": [...]} with the fields of At, or what `kubectl get ats -A -o json`
// prints. cluster names the cluster of those that don't say.
func ParseAts(data []byte, cluster string) ([]At, error) {
	var list struct {
		Ats   []At `json:"ats"`
		Items []struct {
			Metadata struct {
				Namespace string `json:"namespace"`
				Name      string `json:"name"`
				UID       string `json:"uid"`
			} `json:"metadata"`
			Spec struct {
				Schedule string `json:"schedule"`
			} `json:"spec"`
			Status struct {
				Phase string `json:"phase"`
			} `json:"status"`
		} `json:"items"`
	}
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, fmt.Errorf("reading the list of Ats: %w", err)
	}
	ats := list.Ats
	for _, it := range list.Items {
		ats = append(ats, At{
			Namespace: it.Metadata.Namespace, Name: it.Metadata.Name, UID: it.Metadata.UID,
			Schedule: it.Spec.Schedule, Phase: it.Status.Phase,
		})
	}
	for i := range ats {
		if ats[i].Cluster == "" {
			ats[i].Cluster = cluster
		}
		if ats[i].Cluster == "" || ats[i].Namespace == "" || ats[i].Name == "" {
			return nil, fmt.Errorf("reading the list of Ats: entry %d lacks a cluster, namespace or name", i)
		}
	}
	return ats, nil
}

// schedule reads an At's spec.schedule; ok is false for one that no controller could act on.
func schedule(s string) (us int64, ok bool) {
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return 0, false
	}
	return t.UnixMicro(), true
}
