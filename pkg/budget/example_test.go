package budget_test

import (
	"fmt"
	"time"

	"github.com/tenure-dev/tenure/pkg/budget"
)

// Two lines of a cause in a row, then one a minute, which says how many were left out.
func Example() {
	lines := budget.New(budget.Config{Burst: 2, Every: time.Minute, PerSecond: 10})
	now := time.Now()
	for range 5 {
		if _, ok := lines.Take("quota", now); ok {
			fmt.Println("the Pod was refused")
		}
	}
	if left, ok := lines.Take("quota", now.Add(time.Minute)); ok {
		fmt.Println("the Pod was refused, left out:", left)
	}
	// Output:
	// the Pod was refused
	// the Pod was refused
	// the Pod was refused, left out: 3
}
