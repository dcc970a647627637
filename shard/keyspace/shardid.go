package keyspace

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
)

// ShardID names a shard: a part of one cluster's hash space. It is comparable.
type ShardID struct {
	Cluster ClusterName
	Prefix  Prefix
	// Generation is that of the cluster's layout that lists the shard, from the
	// second on. It is 0 in the first, whose shards are named as if there were none.
	Generation uint32
}

// MaxGeneration is the last generation of a cluster's layout.
const MaxGeneration = 999_999_999

// ParseShardID reads what [ShardID.String] writes. The last slash divides, so a
// cluster's name may hold slashes.
func ParseShardID(text string) (ShardID, error) {
	slash := strings.LastIndexByte(text, '/')
	if slash < 0 {
		return ShardID{}, fmt.Errorf("shard %q: want CLUSTER/PREFIX", text)
	}
	if slash == 0 {
		return ShardID{}, fmt.Errorf("shard %q: the cluster's name is empty", text)
	}
	id := ShardID{Cluster: ClusterName(text[:slash])}
	bits, number, later := strings.Cut(text[slash+1:], "@")
	var err error
	if id.Prefix, err = ParsePrefix(bits); err != nil {
		return ShardID{}, fmt.Errorf("shard %q: %w", text, err)
	}
	if later {
		n, err := strconv.ParseUint(number, 10, 32)
		if err != nil || n < 2 || n > MaxGeneration || number[0] == '0' {
			return ShardID{}, fmt.Errorf("shard %q: generation %q: want a number from 2 to %d", text, number, MaxGeneration)
		}
		id.Generation = uint32(n)
	}
	return id, nil
}

// String is CLUSTER/PREFIX: "west/01", or "west/" for all of west. From the second
// generation of the cluster's layout on, that follows: "west/01@2".
func (id ShardID) String() string {
	text := string(id.Cluster) + "/" + id.Prefix.String()
	if id.Generation > 0 {
		text += "@" + strconv.FormatUint(uint64(id.Generation), 10)
	}
	return text
}

// MarshalText makes a shard its string in JSON and in structured logs.
func (id ShardID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText is the reverse of [ShardID.MarshalText].
func (id *ShardID) UnmarshalText(text []byte) error {
	parsed, err := ParseShardID(string(text))
	if err != nil {
		return err
	}
	*id = parsed
	return nil
}

// Contains says whether an object of the shard's cluster with this UID lies in
// the shard.
func (id ShardID) Contains(uid string) bool { return id.Prefix.Contains(Hash(uid)) }

// Compare orders shards by cluster, then as [Prefix.Compare] does, then by generation.
func (id ShardID) Compare(other ShardID) int {
	return cmp.Or(cmp.Compare(id.Cluster, other.Cluster), id.Prefix.Compare(other.Prefix),
		cmp.Compare(id.Generation, other.Generation))
}

// Overlaps says whether the shards have slots in common: then they are of one
// cluster, and one's prefix begins with the other's.
func (id ShardID) Overlaps(other ShardID) bool {
	first, _ := id.Prefix.Slots()
	second, _ := other.Prefix.Slots()
	return id.Cluster == other.Cluster && (id.Prefix.ContainsSlot(second) || other.Prefix.ContainsSlot(first))
}

// Equal is ==, see [Prefix.Equal].
func (id ShardID) Equal(other ShardID) bool { return id == other }

// Fleet names one of the fleets that share a namespace of the home cluster: a DNS
// label, or "" for the default one.
type Fleet string

const (
	// maxObjectName is the longest name of a Kubernetes object.
	maxObjectName = 253
	// digestChars is how much of a digest a name carries: 128 bits in hex.
	digestChars = 32
	// maxLabel is the longest DNS label.
	maxLabel = 63
	// firstRoom is what a cluster's name may take of a name in the default fleet and
	// the first generation, laterRoom what it may take in any other. It is that of the
	// longest prefix, generation and fleet whatever the one's at hand, so that all
	// shards of a cluster are named in the same way.
	firstRoom = maxObjectName - len(".p") - MaxBits
	laterRoom = firstRoom - len("-g999999999") - len(".") - maxLabel
)

// RecordName is the name of the shard's record in the home cluster: a valid name
// for a Kubernetes object, and a different one for every shard of every fleet.
//
// The last label is a mark and the prefix, and what stands before it is the
// cluster: "west.p01". Both a bare "west-01" and a bare "west.01" could be
// cluster names too, so neither would do. From the second generation on, that
// follows: "west.p01-g2". A cluster whose name is too long or isn't an object name
// is cut and told apart by a digest, "NAME-DIGEST.x01"; the other mark keeps that
// clear of every cluster that is really called NAME-DIGEST. Names of a fleet that
// isn't the default one have marks of their own, and the fleet before them:
// "west.FLEET.f01", "NAME-DIGEST.FLEET.y01".
func (id ShardID) RecordName(fleet Fleet) string {
	rest, room := id.Prefix.String(), laterRoom
	switch {
	case id.Generation > 0:
		rest += "-g" + strconv.FormatUint(uint64(id.Generation), 10)
	case fleet == "":
		room = firstRoom
	}
	marks := [2]string{"p", "x"}
	if fleet != "" {
		marks = [2]string{"f", "y"}
	}
	return recordName(id.Cluster, fleet, room, marks, rest)
}

// LayoutName is the name of a cluster's layout: "west.layout", and in other fleets
// "west.FLEET.flayout". The mark tells a digest from a name, as in
// [ShardID.RecordName]: "NAME-DIGEST.xlayout".
func LayoutName(fleet Fleet, cluster ClusterName) string {
	if fleet == "" {
		return recordName(cluster, fleet, firstRoom, [2]string{"", "x"}, "layout")
	}
	return recordName(cluster, fleet, laterRoom, [2]string{"f", "y"}, "layout")
}

// recordName puts a name together. The marks are that of a name and that of a digest.
func recordName(name ClusterName, fleet Fleet, room int, marks [2]string, rest string) string {
	cluster, infix := string(name), "."
	if fleet != "" {
		infix = "." + string(fleet) + "."
	}
	if len(cluster) <= room && isSubdomain(cluster) {
		return cluster + infix + marks[0] + rest
	}
	sum := sha256.Sum256([]byte(cluster))
	digest := hex.EncodeToString(sum[:])[:digestChars]
	readable := strings.TrimRight(cluster[:min(len(cluster), room-digestChars-len("-"))], "-.")
	if !isSubdomain(readable) {
		// A readable part made by replacing characters could be read as the name
		// of another cluster.
		return digest + infix + marks[1] + rest
	}
	return readable + "-" + digest + infix + marks[1] + rest
}

// isSubdomain says whether the text is a lower-case RFC 1123 subdomain, the form
// of a Kubernetes object's name.
func isSubdomain(text string) bool {
	for label := range strings.SplitSeq(text, ".") {
		if label == "" || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		for i := 0; i < len(label); i++ {
			c := label[i]
			if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
				return false
			}
		}
	}
	return true
}
