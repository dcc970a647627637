package kubeconfig

import (
	"errors"
	"fmt"
	"strings"
)

// maxRefusals is how many refusals an error lists: it has to fit into an event.
const maxRefusals = 4

// Refused says why a kubeconfig isn't used: what is wrong with which field and what to do about it, for each of up to
// four fields. It repeats nothing of what is in them.
type Refused struct {
	Reasons []string
	// File is the path of the file that the kubeconfig is from, "" for a Secret.
	File string
	// allowable reports whether another policy would allow everything that is refused.
	allowable bool
	// passing reports whether files that can't be used may be the reason.
	passing bool
}

// Allowable reports whether all that an error refuses is what a [Policy] can allow. A process with another policy may
// use that kubeconfig.
func Allowable(err error) bool {
	r := (*Refused)(nil)
	return errors.As(err, &r) && r.allowable
}

// Passing reports whether what an error refuses may become usable by itself: a file that the kubeconfig names can't be
// read, or holds nothing usable yet.
func Passing(err error) bool {
	r := (*Refused)(nil)
	return errors.As(err, &r) && r.passing
}

func (r *Refused) Error() string {
	shown := r.Reasons[:min(len(r.Reasons), maxRefusals)]
	text := "kubeconfig: " + strings.Join(shown, "; ")
	if r.File != "" {
		text = "file " + r.File + ": " + text
	}
	if more := len(r.Reasons) - len(shown); more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	return text
}

func refused(reasons ...string) *Refused { return &Refused{Reasons: reasons} }
