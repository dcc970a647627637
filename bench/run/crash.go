package run

import (
	"fmt"
	"time"

	"github.com/tenure-dev/tenure/shard/protocol"
	"github.com/tenure-dev/tenure/test/lab"
)

// kill is one replica that was killed.
type kill struct {
	replica string
	at      time.Time
}

// crashGaps pairs each kill with its victim's shards. A gap lasts from the kill until a tenure of the shard begins.
// held returns what a replica held at a time. Complaints name victims that held nothing, shards of a victim that
// weren't taken over, and shards that were taken from a replica that wasn't killed. In all these cases the gaps
// aren't those of the kills alone.
func crashGaps(
	kills []kill, held func(replica string, at time.Time) []string, began []lab.Line,
) (gaps []time.Duration, complaints []string) {
	explained := map[*lab.Line]bool{}
	for _, k := range kills {
		shards := held(k.replica, k.at)
		if len(shards) == 0 {
			complaints = append(complaints, fmt.Sprintf("replica %s held nothing when it was killed", k.replica))
		}
		for _, shard := range shards {
			next := lab.FirstActive(began, shard, 0, k.at)
			if next == nil {
				complaints = append(complaints, fmt.Sprintf("nobody took %s over after replica %s was killed", shard, k.replica))
				continue
			}
			explained[next] = true
			gaps = append(gaps, next.Time.Sub(k.at))
		}
	}
	for i, a := range began {
		if a.Kind == protocol.Crash && !explained[&began[i]] {
			complaints = append(complaints, fmt.Sprintf("%s was taken from %s, which wasn't killed", a.Shard, a.From))
		}
	}
	return gaps, complaints
}
