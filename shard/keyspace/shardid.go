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
	// Generation is that of the layout that lists the shard, from the second on. It is 0 in the first generation, which
	// doesn't appear in shards' names.
	Generation uint32
}

// MaxGeneration is the last generation of a cluster's layout.
const MaxGeneration = 999_999_999

// ParseShardID parses what [ShardID.String] writes. The prefix begins after the last slash, so a cluster's name may
// have slashes.
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

// String returns CLUSTER/PREFIX: "west/01", or "west/" for all of west. From the second generation of the cluster's
// layout on, the generation follows: "west/01@2".
func (id ShardID) String() string {
	text := string(id.Cluster) + "/" + id.Prefix.String()
	if id.Generation > 0 {
		text += "@" + strconv.FormatUint(uint64(id.Generation), 10)
	}
	return text
}

// MarshalText returns the shard's string, for JSON and structured logs.
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

// Contains reports whether an object of the shard's cluster with this UID lies in the shard.
func (id ShardID) Contains(uid string) bool { return id.Prefix.Contains(Hash(uid)) }

// Compare orders shards by cluster, then as [Prefix.Compare] does, then by generation.
func (id ShardID) Compare(other ShardID) int {
	return cmp.Or(cmp.Compare(id.Cluster, other.Cluster), id.Prefix.Compare(other.Prefix),
		cmp.Compare(id.Generation, other.Generation))
}

// Overlaps reports whether the shards have slots in common: they are of one cluster, and one's prefix begins with the
// other's.
func (id ShardID) Overlaps(other ShardID) bool {
	first, _ := id.Prefix.Slots()
	second, _ := other.Prefix.Slots()
	return id.Cluster == other.Cluster && (id.Prefix.ContainsSlot(second) || other.Prefix.ContainsSlot(first))
}

// Equal reports whether id == other; see [Prefix.Equal].
func (id ShardID) Equal(other ShardID) bool { return id == other }

// Fleet names one of the fleets that share a namespace of the home cluster: a DNS label, or "" for the default one.
type Fleet string

const (
	// maxObjectName is the longest name of a Kubernetes object.
	maxObjectName = 253
	// digestChars is how much of a digest a name carries: 128 bits in hex.
	digestChars = 32
	// maxLabel is the longest DNS label.
	maxLabel = 63
	// firstRoom is the room for a cluster's name, in characters, in the name of a record of the default fleet and the
	// first generation. laterRoom is the room in names of all other records. Both assume the longest prefix, and
	// laterRoom the longest generation and fleet, so that all shards of a cluster are named in the same way.
	firstRoom = maxObjectName - len(".p") - MaxBits
	laterRoom = firstRoom - len("-g999999999") - len(".") - maxLabel
)

// RecordName returns the name of the shard's record in the home cluster: a valid name for a Kubernetes object, and a
// different one for every shard of every fleet.
//
//	west.p01                the last label is the mark "p" and the prefix
//	west.p01-g2             from the second generation on, the generation follows
//	NAME-DIGEST.x01         the cluster's name is too long, or no object name
//	west.FLEET.f01          a fleet other than the default one
//	NAME-DIGEST.FLEET.y01   both
//
// There is a mark because "west-01" and "west.01" could be names of clusters, too. A digest has another mark, because a
// cluster may really be called NAME-DIGEST.
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

// LayoutName returns the name of a cluster's layout: "west.layout", or in a fleet other than the default one
// "west.FLEET.flayout". The name of a cluster with a digest has another mark, as in [ShardID.RecordName]:
// "NAME-DIGEST.xlayout".
func LayoutName(fleet Fleet, cluster ClusterName) string {
	if fleet == "" {
		return recordName(cluster, fleet, firstRoom, [2]string{"", "x"}, "layout")
	}
	return recordName(cluster, fleet, laterRoom, [2]string{"f", "y"}, "layout")
}

// recordName builds the name of a record. marks[0] is used with the full name of the cluster, marks[1] with a digest.
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
		// Use the digest alone. If characters were replaced to make the name readable, it could look like that of another
		// cluster.
		return digest + infix + marks[1] + rest
	}
	return readable + "-" + digest + infix + marks[1] + rest
}

// isSubdomain reports whether the text is a lower-case RFC 1123 subdomain, the form of a Kubernetes object's name.
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
