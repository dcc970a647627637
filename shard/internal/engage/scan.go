package engage

import (
	"bytes"
	"slices"
)

// What is here finds where values in JSON end, as API servers write it, without checking their syntax.

// apartItems returns the items of a list in JSON, as API servers write it, and the list without them; no items for
// anything else.
func apartItems(data []byte) (around []byte, items [][]byte) {
	if len(data) == 0 || data[0] != '{' {
		return nil, nil
	}
	from, to := 0, 0    // where the items begin and end
	for field := 1; ; { // where a field of the list begins
		name := valueIn(data[field:])
		value := field + name + 1
		if name == 0 || value >= len(data) || data[value-1] != ':' {
			return nil, nil
		}
		n := 0
		switch key := data[field : field+name]; {
		case bytes.IndexByte(key, '\\') >= 0: // it may be "items" with escapes
		case string(key) != `"items"`:
			n = valueIn(data[value:])
		case items == nil: // a second field of that name is left to client-go
			items, n = itemsIn(data[value:])
			from, to = value+1, value+n-1
		}
		end := value + n
		switch {
		case n == 0 || end >= len(data):
			return nil, nil
		case data[end] == '}' && items != nil:
			return slices.Concat(data[:from], data[to:]), items
		case data[end] != ',':
			return nil, nil
		}
		field = end + 1
	}
}

// itemsIn returns the objects in a JSON list that data begins with, and the length of the list; 0 if it is none, or has
// no object or anything else.
func itemsIn(data []byte) (items [][]byte, n int) {
	if len(data) == 0 || data[0] != '[' {
		return nil, 0
	}
	for begin := 1; begin < len(data) && data[begin] == '{'; {
		size := valueIn(data[begin:])
		end := begin + size
		if size == 0 || end >= len(data) {
			return nil, 0
		}
		items = append(items, data[begin:end])
		switch data[end] {
		case ']':
			return items, end + 1
		case ',':
			begin = end + 1
		default:
			return nil, 0
		}
	}
	return nil, 0
}

// withoutManaged returns an object in JSON without its managed fields, in the same memory. Its metadata begins at
// from, as API servers write it; if it doesn't, they stay.
func withoutManaged(data []byte, from int) []byte {
	const metadata = `"metadata":{`
	rest, ok := bytes.CutPrefix(data[from:], []byte(metadata))
	if !ok {
		return data
	}
	for field := len(data) - len(rest); ; { // where a field of the metadata begins
		name := valueIn(data[field:])
		if name == 0 || field+name >= len(data) || data[field+name] != ':' {
			return data
		}
		value := valueIn(data[field+name+1:])
		end := field + name + 1 + value // of the field
		if value == 0 || end >= len(data) {
			return data
		}
		last := data[end] == '}'
		switch {
		case !last && data[end] != ',':
			return data
		case string(data[field:field+name]) != `"managedFields"`:
		case !last:
			return append(data[:field], data[end+1:]...)
		case data[field-1] == ',':
			return append(data[:field-1], data[end:]...)
		default: // the only field
			return append(data[:field], data[end:]...)
		}
		if last {
			return data
		}
		field = end + 1
	}
}

// valueIn returns the length of the JSON value that data begins with, without space; 0 if it doesn't end in it.
func valueIn(data []byte) int {
	switch {
	case len(data) == 0:
		return 0
	case data[0] == '{', data[0] == '[':
		var end extent
		return end.of(data)
	case data[0] <= ' ': // API servers write no space
		return 0
	case data[0] != '"':
		return max(0, bytes.IndexAny(data, ",}]"))
	}
	for i := 1; i < len(data); i++ {
		switch data[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return 0
}

// parts returns the parts of {"type":"KIND","object":{...}}; ok is false for everything else.
func parts(data []byte) (kind, object []byte, ok bool) {
	rest, ok := bytes.CutPrefix(data, []byte(`{"type":"`))
	if !ok {
		return nil, nil, false
	}
	kind, rest, ok = bytes.Cut(rest, []byte(`","object":`))
	if !ok || bytes.ContainsAny(kind, `"\`) || !bytes.HasPrefix(rest, []byte("{")) {
		return nil, nil, false
	}
	var end extent
	n := end.of(rest)
	if n == 0 || string(bytes.TrimSpace(rest[n:])) != "}" {
		return nil, nil, false
	}
	return kind, rest[:n], true
}

// extent finds the end of a JSON object or list, in pieces. It distinguishes strings from the rest, and leaves the
// syntax to the decoder.
type extent struct {
	depth             int
	inString, escaped bool
}

// of returns how much of the next piece belongs to the object, 0 if it doesn't end there.
func (e *extent) of(piece []byte) int {
	for i, b := range piece {
		switch {
		case e.escaped:
			e.escaped = false
		case e.inString:
			e.escaped, e.inString = b == '\\', b != '"'
		case b == '"':
			e.inString = true
		case b == '{', b == '[':
			e.depth++
		case b == '}', b == ']':
			if e.depth--; e.depth <= 0 {
				return i + 1
			}
		}
	}
	return 0
}
