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
)

// A list is taken in pages, so that what is in memory at a time depends on the size of a page and not on that of the
// kind: thirty thousand objects of 32 KiB are 1 GiB, and whoever may create objects decides about both figures. Each
// page goes through the kind's transform before the next one is asked for.
const (
	// firstPage is how many objects the first page has. The next ones have as many as make pageBytes, by the size of the
	// last, but not more than mostObjects and not more than pageGrowth times as many as the last.
	firstPage   = 128
	pageBytes   = 2 << 20
	pageGrowth  = 8
	mostObjects = 4096
	// largestPage bounds a page, in bytes. One that turns out larger isn't read to its end, but asked for anew with fewer
	// objects; a single object has no bound but the API server's.
	largestPage = 8 << 20
)

// page is one page on its way here, or another answer whose size is bounded. The context of a page's request carries it
// to the transport.
type page struct {
	most int64 // in bytes; 0 for no bound
	read atomic.Int64
}

// pageKey is that of a page in a context.
type pageKey struct{}

// pageOf returns the page that a request is about, nil if it is about something else.
func pageOf(ctx context.Context) *page {
	p, _ := ctx.Value(pageKey{}).(*page)
	return p
}

var errLargePage = errors.New("the answer is larger than it may be")

// got notes that n more bytes were read. Its error ends the reading.
func (p *page) got(n int) error {
	p.read.Add(int64(n))
	if p.isLarge() {
		return errLargePage
	}
	return nil
}

func (p *page) isLarge() bool { return p.most > 0 && p.read.Load() > p.most }

// list fills a cache: page by page, as one list.
func (f *filter) list(ctx context.Context, lw toolscache.ListerWithContext,
	opts metav1.ListOptions) (runtime.Object, error) {
	opts.ShardSelector, opts.LabelSelector, opts.FieldSelector = f.shardSelector, f.labels, f.fields.ofList()
	opts.Limit, opts.Continue = firstPage, ""
	switch {
	case opts.ResourceVersionMatch != "":
	case opts.ResourceVersion == "0": // with this version, a limit would be ignored
		opts.ResourceVersion, opts.ResourceVersionMatch = "1", metav1.ResourceVersionMatchNotOlderThan
	default:
		// A reflector that lists anew wants nothing older than what it has. What there is now isn't, unless the cluster was
		// restored from a backup: then a server would have to be asked ten times, and take four seconds each, before it is
		// believed that it doesn't get there.
		opts.ResourceVersion = ""
	}
	var first runtime.Object
	var kept []runtime.Object
	expired := false // the last token was, so this one is another
	for {
		p := &page{most: largestPage}
		if opts.Limit == 1 {
			p.most = 0
		}
		list, err := lw.ListWithContext(context.WithValue(ctx, pageKey{}, p), opts)
		if err != nil && p.isLarge() {
			opts.Limit = max(1, opts.Limit/pageGrowth)
			continue
		}
		if opts.FieldSelector != "" && apierrors.IsBadRequest(err) {
			f.fields.unknown.Store(true)
			opts.FieldSelector = ""
			continue
		}
		if next := continued(err); next != "" && opts.Continue != "" && !expired {
			opts.Continue, expired = next, true
			continue
		}
		if err != nil {
			return nil, err
		}
		expired = false
		items, err := f.sift(list)
		if err != nil {
			return nil, err
		}
		kept = append(kept, items.kept...)
		about, err := meta.ListAccessor(list)
		if err != nil {
			return nil, fmt.Errorf("reading a %T: %w", list, err)
		}
		if first == nil {
			first = list
		}
		if opts.Continue = about.GetContinue(); opts.Continue == "" {
			break
		}
		opts.ResourceVersion, opts.ResourceVersionMatch = "", "" // are in the token
		opts.Limit = nextPage(opts.Limit, items.arrived, p.read.Load())
	}
	return first, joined(first, kept)
}

// continued is the token with which a list goes on whose own has expired; "" for none. An API server forgets a version
// after five to ten minutes. What follows is of a later one. The list has the version of its first page, so a watch
// from there brings all of it up to date. A list that begins anew would take as long again, and expire again.
func continued(err error) string {
	var answer apierrors.APIStatus
	if !apierrors.IsResourceExpired(err) || !errors.As(err, &answer) {
		return ""
	}
	return answer.Status().Continue
}

// joined makes a list that has all items of its first page.
func joined(list runtime.Object, items []runtime.Object) error {
	if err := meta.SetList(list, items); err != nil {
		return fmt.Errorf("narrowing a %T to the shard: %w", list, err)
	}
	about, err := meta.ListAccessor(list)
	if err == nil {
		about.SetContinue("")
		about.SetRemainingItemCount(nil)
	}
	return err
}

// nextPage returns how many objects to ask for after a page of some, of so many bytes.
func nextPage(limit, objects, bytes int64) int64 {
	most := min(limit*pageGrowth, mostObjects)
	if objects == 0 || bytes == 0 {
		return most
	}
	return max(1, min(most, pageBytes*objects/bytes))
}
