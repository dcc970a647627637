package keyspace

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
)

// ShardID names a shard: a part of one cluster's hash space. It is comparable.
type ShardID struct {
	Cluster ClusterName
	Prefix  Prefix
}

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
	prefix, err := ParsePrefix(text[slash+1:])
	if err != nil {
		return ShardID{}, fmt.Errorf("shard %q: %w", text, err)
	}
	return ShardID{Cluster: ClusterName(text[:slash]), Prefix: prefix}, nil
}

// String is CLUSTER/PREFIX: "west/01", or "west/" for all of west.
func (id ShardID) String() string { return string(id.Cluster) + "/" + id.Prefix.String() }

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

// Compare orders shards by cluster, then as [Prefix.Compare] does.
func (id ShardID) Compare(other ShardID) int {
	return cmp.Or(cmp.Compare(id.Cluster, other.Cluster), id.Prefix.Compare(other.Prefix))
}

// Equal is ==, see [Prefix.Equal].
func (id ShardID) Equal(other ShardID) bool { return id == other }

const (
	// maxObjectName is the longest name of a Kubernetes object.
	maxObjectName = 253
	// plainMark and digestMark begin the last label of a record's name and say
	// how the labels before it were made.
	plainMark, digestMark = ".p", ".x"
	// digestChars is how much of a digest a name carries: 128 bits in hex.
	digestChars = 32
)

// RecordName is the name of the shard's record in the home cluster: a valid name
// for a Kubernetes object, and a different one for every shard.
//
// The last label is the mark and the prefix, and what stands before it is the
// cluster: "west.p01". Both a bare "west-01" and a bare "west.01" could be
// cluster names too, so neither would do. A cluster whose name is too long or
// isn't an object name is cut and told apart by a digest, "NAME-DIGEST.x01"; the
// other mark keeps that clear of every cluster that is really called
// NAME-DIGEST.
func (id ShardID) RecordName() string {
	cluster, prefix := string(id.Cluster), id.Prefix.String()
	// The room is that of the longest prefix whatever this one's length, so that
	// all shards of a cluster are named in the same way.
	const plainRoom = maxObjectName - len(plainMark) - MaxBits
	if len(cluster) <= plainRoom && isSubdomain(cluster) {
		return cluster + plainMark + prefix
	}
	sum := sha256.Sum256([]byte(cluster))
	digest := hex.EncodeToString(sum[:])[:digestChars]
	const cutRoom = plainRoom - digestChars - len("-")
	readable := strings.TrimRight(cluster[:min(len(cluster), cutRoom)], "-.")
	if !isSubdomain(readable) {
		// A readable part made by replacing characters could be read as the name
		// of another cluster.
		return digest + digestMark + prefix
	}
	return readable + "-" + digest + digestMark + prefix
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
