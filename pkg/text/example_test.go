package text_test

import (
	"fmt"

	"github.com/tenure-dev/tenure/pkg/text"
)

// What an API server said, fit for a log or a terminal.
func ExampleLine() {
	fmt.Println(text.Line("quota\nexceeded \x1b[2Jby a lot", 24))
	// Output: quota exceeded �[2J…
}
