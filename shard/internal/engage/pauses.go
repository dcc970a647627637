package engage

import "time"

// pauses says when keys are put off, and for how long.
type pauses struct {
	until      time.Time // zero while closed
	pause      time.Duration
	probing    bool // one key is on trial, and nothing was heard of it yet
	cause      Cause
	refusals   int             // since something was last served
	namespaces map[string]bool // of these refusals
}

// holds reports whether the keys of a namespace are put off.
func (p *pauses) holds(namespace string) bool {
	if p.until.IsZero() {
		return false
	}
	return p.cause == Silence || p.namespaces[namespace] || len(p.namespaces) >= mostNamespaces
}

func (p *pauses) putOff(now time.Time, namespace string) (wait time.Duration, trial bool) {
	p.expire(now)
	if !p.holds(namespace) {
		return 0, false
	}
	if wait := p.until.Sub(now); wait > 0 {
		return wait, false
	}
	p.until, p.probing = now.Add(p.pause), true
	return 0, true
}

// left returns for how long the keys of a namespace are put off; open is false if they aren't.
func (p *pauses) left(now time.Time, namespace string) (wait time.Duration, open bool) {
	p.expire(now)
	if !p.holds(namespace) {
		return 0, false
	}
	return max(0, p.until.Sub(now)), true
}

// untried lets the next key through at once, since the one on trial sent no request.
func (p *pauses) untried(now time.Time) {
	if p.probing {
		p.until, p.probing = now, false
	}
}

// expire closes the pauses if no key has tried for long.
func (p *pauses) expire(now time.Time) {
	if !p.until.IsZero() && now.Sub(p.until) > untriedFor {
		p.close()
	}
}

func (p *pauses) close() { *p = pauses{} }

// note records a refusal in a namespace.
func (p *pauses) note(namespace string) {
	p.refusals++
	if p.namespaces == nil {
		p.namespaces = map[string]bool{}
	}
	if len(p.namespaces) < mostNamespaces {
		p.namespaces[namespace] = true
	}
}

// open begins a pause, unless one is running: requests that were in flight together fail together and count once. But
// the longest wait that one of them was asked for counts.
func (p *pauses) open(now time.Time, cause Cause, retryAfter time.Duration) {
	asked := now.Add(min(retryAfter, LongestAsked))
	if now.Before(p.until) && !p.probing {
		if cause == p.cause && asked.After(p.until) {
			p.until = asked
		}
		return
	}
	p.pause = min(max(2*p.pause, FirstPause), LastPause)
	p.until, p.probing, p.cause = now.Add(p.pause), false, cause
	if asked.After(p.until) {
		p.until = asked
	}
}
