package audit

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// cursor walks one line of JSON without building it. The standard decoder spends most of its time on values that
// the witness throws away (bodies, groups, annotations); a log of gigabytes makes that the whole cost.
// It accepts everything that encoding/json accepts (fuzzed), and is laxer inside values that it skips.
type cursor struct {
	b []byte
	i int
}

func (c *cursor) fail(want string) error {
	return fmt.Errorf("column %d: want %s", c.i+1, want)
}

func (c *cursor) space() {
	for c.i < len(c.b) {
		switch c.b[c.i] {
		case ' ', '\t', '\r', '\n':
			c.i++
		default:
			return
		}
	}
}

// peek is the next byte that is not space, zero at the end.
func (c *cursor) peek() byte {
	c.space()
	if c.i == len(c.b) {
		return 0
	}
	return c.b[c.i]
}

// fields walks the object at the cursor. visit consumes each value. A null counts as an empty object.
func (c *cursor) fields(visit func(name []byte) error) error {
	if c.peek() == 'n' {
		return c.skip()
	}
	if c.peek() != '{' {
		return c.fail("an object")
	}
	c.i++
	if c.peek() == '}' {
		c.i++
		return nil
	}
	for {
		name, err := c.text()
		if err != nil {
			return err
		}
		if c.peek() != ':' {
			return c.fail("a colon")
		}
		c.i++
		if err := visit(name); err != nil {
			return err
		}
		switch c.peek() {
		case ',':
			c.i++
		case '}':
			c.i++
			return nil
		default:
			return c.fail("a comma or the end of an object")
		}
	}
}

// raw returns the string at the cursor between its quotes, as written.
func (c *cursor) raw() (s []byte, escaped bool, err error) {
	if c.peek() != '"' {
		return nil, false, c.fail("a string")
	}
	start := c.i + 1
	for at := start; ; {
		n := bytes.IndexByte(c.b[at:], '"')
		if n < 0 {
			return nil, false, c.fail("the end of a string")
		}
		end := at + n
		slashes := 0
		for end-slashes > start && c.b[end-slashes-1] == '\\' {
			slashes++
		}
		if slashes%2 == 0 {
			c.i = end + 1
			s = c.b[start:end]
			return s, bytes.IndexByte(s, '\\') >= 0, nil
		}
		at = end + 1
	}
}

// text returns the string at the cursor. It is valid until the line's buffer is used again. A null is empty.
func (c *cursor) text() ([]byte, error) {
	if c.peek() == 'n' {
		return nil, c.skip()
	}
	start := c.i
	s, escaped, err := c.raw()
	if err != nil || !escaped {
		return s, err
	}
	var plain string
	if err := json.Unmarshal(c.b[start:c.i], &plain); err != nil {
		return nil, fmt.Errorf("column %d: %w", start+1, err)
	}
	return []byte(plain), nil
}

// number returns a whole number that is not negative. A null is zero.
func (c *cursor) number() (int, error) {
	if c.peek() == 'n' {
		return 0, c.skip()
	}
	start, n := c.i, 0
	for c.i < len(c.b) && c.b[c.i] >= '0' && c.b[c.i] <= '9' && n < 1<<40 {
		n = n*10 + int(c.b[c.i]-'0')
		c.i++
	}
	if c.i == start {
		return 0, c.fail("a number")
	}
	return n, nil
}

// value returns the bytes of the value at the cursor and steps over it.
func (c *cursor) value() ([]byte, error) {
	c.space()
	start := c.i
	err := c.skip()
	return c.b[start:c.i], err
}

// skip steps over the value at the cursor.
func (c *cursor) skip() error {
	switch c.peek() {
	case 0:
		return c.fail("a value")
	case '"':
		_, _, err := c.raw()
		return err
	case '{', '[':
		return c.skipNested()
	case ',', ':', '}', ']':
		return c.fail("a value")
	}
	for c.i < len(c.b) {
		switch c.b[c.i] {
		case ',', '}', ']', ' ', '\t', '\r', '\n':
			return nil
		}
		c.i++
	}
	return nil
}

func (c *cursor) skipNested() error {
	depth := 0
	for c.i < len(c.b) {
		switch c.b[c.i] {
		case '"':
			if _, _, err := c.raw(); err != nil {
				return err
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			depth--
			if depth == 0 {
				c.i++
				return nil
			}
		}
		c.i++
	}
	return c.fail("the end of an object")
}
