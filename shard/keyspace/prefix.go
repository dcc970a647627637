package keyspace

import (
	"cmp"
	"fmt"
	"strings"
)

// MaxBits is the length of the longest prefix: the bits of a slot.
const MaxBits = 8

// Prefix is zero to eight leading bits of the hash. It is comparable, and its zero value is the empty prefix, which
// contains every hash.
type Prefix struct {
	top  uint8 // the bits, left-aligned, zeros after them: also the first slot
	bits uint8
}

// ParsePrefix parses what [Prefix.String] writes: up to eight binary digits.
func ParsePrefix(text string) (Prefix, error) {
	if len(text) > MaxBits {
		return Prefix{}, fmt.Errorf("prefix %q: want at most %d binary digits", text, MaxBits)
	}
	var p Prefix
	for i := 0; i < len(text); i++ {
		if text[i] != '0' && text[i] != '1' {
			return Prefix{}, fmt.Errorf("prefix %q: want binary digits only", text)
		}
		p.top |= (text[i] - '0') << (MaxBits - 1 - i)
		p.bits++
	}
	return p, nil
}

// Partition returns the 2^bits prefixes of that length, in order. It panics unless bits is within 0..[MaxBits], so
// callers must validate user input.
func Partition(bits int) []Prefix {
	if bits < 0 || bits > MaxBits {
		panic(fmt.Sprintf("keyspace: a partition by %d bits: want 0 to %d", bits, MaxBits))
	}
	prefixes := make([]Prefix, 1<<bits)
	for i := range prefixes {
		prefixes[i] = Prefix{top: uint8(i << (MaxBits - bits)), bits: uint8(bits)}
	}
	return prefixes
}

// String returns the bits as binary digits, "" for the empty prefix.
func (p Prefix) String() string {
	var digits [MaxBits]byte
	for i := range p.bits {
		digits[i] = '0' + p.top>>(MaxBits-1-i)&1
	}
	return string(digits[:p.bits])
}

// MarshalText returns the prefix's string. JSON and structured logs use it, since they can't show unexported fields.
func (p Prefix) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText is the reverse of [Prefix.MarshalText].
func (p *Prefix) UnmarshalText(text []byte) error {
	parsed, err := ParsePrefix(string(text))
	if err != nil {
		return err
	}
	*p = parsed
	return nil
}

// Bits returns the prefix's length.
func (p Prefix) Bits() int { return int(p.bits) }

// Contains reports whether the hash starts with the prefix.
func (p Prefix) Contains(hash uint64) bool { return p.ContainsSlot(slotOfHash(hash)) }

// ContainsSlot reports whether the hashes of the slot start with the prefix. Either all of them do or none does, since
// a prefix is a run of whole slots.
func (p Prefix) ContainsSlot(s Slot) bool { return (uint8(s)^p.top)>>(MaxBits-p.bits) == 0 }

// Slots returns the first and the last slot of the prefix, both inclusive.
func (p Prefix) Slots() (first, last Slot) {
	return Slot(p.top), Slot(p.top | uint8(0xff>>p.bits))
}

// Range returns the half-open interval [lo, hi) of the prefix's hashes, modulo 2^64: if hi is 0, it stands for 2^64.
func (p Prefix) Range() (lo, hi uint64) {
	first, last := p.Slots()
	return uint64(first) << (64 - MaxBits), (uint64(last) + 1) << (64 - MaxBits)
}

// Split returns the two prefixes that are one bit longer, lower first. They are disjoint and their union is p. It fails
// for a single slot.
func (p Prefix) Split() (lower, upper Prefix, err error) {
	if p.bits == MaxBits {
		return Prefix{}, Prefix{}, fmt.Errorf("splitting prefix %s: a prefix of 8 bits is one slot and can't be split", p)
	}
	lower = Prefix{top: p.top, bits: p.bits + 1}
	upper = Prefix{top: p.top | 0x80>>p.bits, bits: p.bits + 1}
	return lower, upper, nil
}

// Compare orders prefixes by their first hash, a parent before its children.
func (p Prefix) Compare(q Prefix) int {
	return cmp.Or(cmp.Compare(p.top, q.top), cmp.Compare(p.bits, q.bits))
}

// Equal reports whether p == q. Comparisons by reflection, such as go-cmp's, need it because the type has unexported
// fields.
func (p Prefix) Equal(q Prefix) bool { return p == q }

// Selector returns the prefix as a value of ListOptions.shardSelector. The API server requires exactly 16 hex digits,
// except for the end of the last range, 2^64, which has 17 (k8s.io/apiserver/pkg/sharding).
func (p Prefix) Selector() string {
	lo, hi := p.Range()
	end := fmt.Sprintf("0x%016x", hi)
	if hi == 0 {
		end = "0x10000000000000000"
	}
	return fmt.Sprintf("shardRange(object.metadata.uid, '0x%016x', '%s')", lo, end)
}

// SlotSelector returns a label selector for objects whose owners lie in the prefix. For the empty prefix it only
// requires the label: naming all 256 values would mean the same and cost the API server more.
func (p Prefix) SlotSelector() string {
	if p.bits == 0 {
		return SlotLabel
	}
	first, last := p.Slots()
	var text strings.Builder
	text.WriteString(SlotLabel + " in (")
	for slot := int(first); slot <= int(last); slot++ {
		if slot > int(first) {
			text.WriteByte(',')
		}
		text.WriteString(Slot(slot).String())
	}
	text.WriteByte(')')
	return text.String()
}
