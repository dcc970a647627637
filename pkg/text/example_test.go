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

func ExampleFew() {
	fmt.Println(text.Few([]string{"ams", "fra", "lhr", "mad"}, 3))
	// Output: ams, fra, lhr and 1 more
}
