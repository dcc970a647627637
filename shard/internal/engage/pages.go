package engage

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/tenure-dev/tenure/shard/internal/cas"
)

// A list is taken in pages, so that the memory in use depends on the size of a page and not on that of the kind:
// thirty thousand objects of 32 KiB are 1 GiB, and users who create objects decide about both figures. Each page goes
// through the kind's transform before the next one is requested.
const (
	// firstPage is how many objects are requested for the first page. For each later page it is as many as make
	// pageBytes, by the size of the last page, but at most mostObjects and at most pageGrowth times as many as for
	// the last.
	firstPage   = 128
	pageBytes   = 2 << 20
	pageGrowth  = 8
	mostObjects = 4096
	// largestPage bounds a page, in bytes. A page that turns out larger isn't read to its end, but requested again
	// with fewer objects. A single object has no bound but the API server's.
	largestPage = 8 << 20
	// largestList bounds the answer of a server that ignores limits, in bytes.
	largestList = 64 << 20
)

// page is a page of a list that is being read, or another answer whose size is bounded. The context of its request
// carries it to the transport.
type page struct {
	most     int64 // in bytes; 0 for no bound
	optional bool  // the cluster may refuse it
	read     atomic.Int64
}

// pageKey is the key of a page in a context.
type pageKey struct{}

// pageOf returns the page of a request, nil if it has none.
func pageOf(ctx context.Context) *page {
	p, _ := ctx.Value(pageKey{}).(*page)
	return p
}

var errLargePage = errors.New("the answer is larger than it may be")

// got records that n more bytes were read. Its error ends the reading.
func (p *page) got(n int) error {
	p.read.Add(int64(n))
	if p.isLarge() {
		return errLargePage
	}
	return nil
}

func (p *page) isLarge() bool { return p.most > 0 && p.read.Load() > p.most }

// list reads a list page by page, and returns it as one. A cluster answers a few lists at a time.
func (f *filter) list(ctx context.Context, lw toolscache.ListerWithContext,
	opts metav1.ListOptions) (runtime.Object, error) {
	if err := f.traffic.lists.Enter(ctx, listsAtOnce); err != nil {
		return nil, err
	}
	defer f.traffic.lists.Leave()
	f.shards.unknown.Store(false) // it may be another API server by now
	f.fields.unknown.Store(false) // its CRD may have been replaced since
	opts.ShardSelector, opts.LabelSelector, opts.FieldSelector = f.shards.ofList(), f.labels, f.fields.ofList()
	opts.Limit, opts.Continue = firstPage, ""
	switch {
	case opts.ResourceVersionMatch != "":
	case opts.ResourceVersion == "0": // with this version, a limit would be ignored
		opts.ResourceVersion, opts.ResourceVersionMatch = "1", metav1.ResourceVersionMatchNotOlderThan
	default:
		// A reflector that lists anew wants nothing older than what it has. The present state isn't older, unless the
		// cluster was restored from a backup. Then a server doesn't reach the reflector's version, and it would take
		// ten requests of four seconds each until that is believed.
		opts.ResourceVersion = ""
	}
	all, spaces := &items{}, map[string]string{}
	expired := false // the last token was, and this one replaces it
	for {
		p := &page{most: largestPage, optional: f.optional}
		if opts.Limit == 1 { // it may be a server that ignores limits
			p.most = largestList
		}
		list, err := lw.ListWithContext(context.WithValue(ctx, pageKey{}, p), opts)
		if err != nil {
			if f.again(err, p, &opts, &expired) {
				continue
			}
			return nil, err
		}
		expired = false
		about, err := aboutList(list)
		if err != nil {
			return nil, err
		}
		kept, arrived, err := f.sift(list, spaces)
		if err != nil {
			return nil, err
		}
		all.Items = append(all.Items, kept...)
		if all.ResourceVersion == "" {
			all.ResourceVersion = about.GetResourceVersion() // a watch from there brings later pages up to date, too
		}
		next := about.GetContinue()
		switch next {
		case "":
			return all, nil
		case opts.Continue: // what is between may not pass tokens on: the list would grow without end
			return nil, fmt.Errorf("a page of a %T ends where it began, at %.80q", list, next)
		}
		opts.Continue = next
		opts.ResourceVersion, opts.ResourceVersionMatch = "", "" // are in the token
		opts.Limit = nextPage(opts.Limit, arrived, p.read.Load())
	}
}

// again reports whether a request for a page that failed should be repeated, and changes its options for that. expired
// is whether the token that it continues by replaces one that has expired.
func (f *filter) again(err error, p *page, opts *metav1.ListOptions, expired *bool) bool {
	next := continued(err)
	switch {
	case p.isLarge() && opts.Limit > 1:
		opts.Limit = max(1, opts.Limit/pageGrowth)
	case opts.Continue == "" && f.leavesOut(err, opts):
		f.shards.unknown.Store(opts.ShardSelector == "")
		f.fields.unknown.Store(opts.FieldSelector == "")
	case next != "" && opts.Continue != "" && !*expired:
		opts.Continue, *expired = next, true
	default:
		return false
	}
	return true
}

// leavesOut reports whether a request failed perhaps because the API server doesn't know a selector. If so, it leaves
// one out of the options: first the shardSelector, which few API servers know, then that of fields instead, and then
// both. What arrives is checked anyway. Only a list decides for later requests, too: the next one may not come for days
// after a watch was refused by the last old server of an upgrade.
func (f *filter) leavesOut(err error, opts *metav1.ListOptions) bool {
	switch {
	case !apierrors.IsBadRequest(err) || cas.ByProxy(err):
		return false
	case opts.ShardSelector != "":
		opts.ShardSelector = ""
	case opts.FieldSelector != "":
		opts.ShardSelector, opts.FieldSelector = f.shards.text, ""
	default:
		return false
	}
	return true
}

// aboutList returns what a list says of itself. It fails for what is no API server's list: any JSON object, such as
// that of a server that stands in for one, decodes as an empty list, and a cache would drop all that it has.
func aboutList(list runtime.Object) (metav1.ListInterface, error) {
	about, err := meta.ListAccessor(list)
	switch {
	case err != nil:
		return nil, fmt.Errorf("reading a %T: %w", list, err)
	case about.GetResourceVersion() == "":
		return nil, fmt.Errorf("a %T without a resourceVersion: is this an API server's answer?", list)
	}
	return about, nil
}

// continued returns the token that continues a list whose own token has expired; "" for none. An API server forgets a
// version after five to ten minutes. The rest of the list is of a later version then. The list has the version of its
// first page. A watch from there brings all of it up to date, if the API server still has the changes since then; if it
// has too few, it refuses the watch, and the kind is listed anew. A list that didn't go on would expire each time.
func continued(err error) string {
	var answer apierrors.APIStatus
	if !apierrors.IsResourceExpired(err) || !errors.As(err, &answer) {
		return ""
	}
	return answer.Status().Continue
}

// nextPage returns the limit of the next page, by the limit, the objects and the bytes of the last.
func nextPage(limit, objects, bytes int64) int64 {
	most := min(limit*pageGrowth, mostObjects)
	if objects == 0 || bytes == 0 {
		return most
	}
	return max(1, min(most, pageBytes*objects/bytes))
}
