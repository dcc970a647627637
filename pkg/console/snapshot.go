package console

import (
	"math"
	"time"

	"github.com/tenure-dev/tenure/shard/inspect"
	"github.com/tenure-dev/tenure/shard/keyspace"
)

// Snapshot is all that a judgement of the fleet depends on.
type Snapshot struct {
	// Home is the address of the home API server, and Namespace that of the records.
	Home, Namespace string
	Now             time.Time
	Records         inspect.Records
	// Clusters are the registered ones, as far as they are known. If Secrets couldn't be read, Registered is false,
	// and Clusters are those that replicas' events are about.
	Clusters   []Answer
	Registered bool
	// BadLimits says which annotations of Secrets set limits that can't be used.
	BadLimits []string
	// Unread is what couldn't be read, and why. Judgements that need it are left out.
	Unread []string
	// Seen is what was seen of each Lease, by name, on the clock of Now. It is nil without a watch.
	Seen map[string]LeaseWatch
	// Repeated says that the fleet is looked at again and again: a replica isn't called quiet by the time in its Lease
	// before it should have renewed while it was watched.
	Repeated bool
}

// Answer is what a workload cluster's API server said.
type Answer struct {
	Cluster keyspace.ClusterName
	// Since is when the cluster was registered, or, for an answer from a replica's event, when home received it.
	Since time.Time
	// Reason is that of package clusterhealth: "Usable", or what is wrong. "" means that it wasn't asked.
	Reason, Note string
	// Reported says that a replica said so, by an event or on its page, not the cluster's API server.
	Reported bool
	// UID is that of the cluster that the credentials in its Secret lead to, Recorded that of the Secret's annotation;
	// "" if it isn't known.
	UID, Recorded string
	// Issued and Expires are the life of the credentials in its Secret; zero where they, or the Secret, don't say.
	Issued, Expires time.Time
}

// Seconds is a duration in an answer's JSON.
type Seconds float64

func seconds(d time.Duration) Seconds { return Seconds(d.Seconds()) }

// Duration converts it back. A Duration holds no more than 292 years.
func (s Seconds) Duration() time.Duration {
	const most = Seconds(math.MaxInt64 / int64(time.Second))
	return time.Duration(float64(max(-most, min(s, most))) * float64(time.Second))
}
