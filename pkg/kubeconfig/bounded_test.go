package kubeconfig

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenure-dev/tenure/test/must"
)

// answering answers with a body of that many bytes.
type answering int64

func (a answering) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(io.LimitReader(zeros{}, int64(a)))}, nil
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

func TestAnAnswerThatIsTooLargeIsNotReadToItsEnd(t *testing.T) {
	for size, whole := range map[int64]bool{1000: true, largestAnswer: true, largestAnswer + 1: false, 1 << 40: false} {
		res, err := Bounded(answering(size)).RoundTrip(&http.Request{})
		must.Succeed(t, err)
		n, err := io.Copy(io.Discard, res.Body)
		large := &http.MaxBytesError{}
		if n != min(size, largestAnswer) || errors.As(err, &large) == whole {
			t.Errorf("of %d bytes %d were read: %v", size, n, err)
		}
	}
}

func TestACacheKeepsOfASecretItsKubeconfigAlone(t *testing.T) {
	for name, text := range map[string]string{"short": "clusters: []", "too long": strings.Repeat("x", 2*maxText)} {
		t.Run(name, func(t *testing.T) {
			s := &corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Name: "west", Labels: map[string]string{Label: "true"},
					ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}},
				Data: map[string][]byte{Key: []byte(text), "junk": make([]byte, 1<<20)},
			}
			_, before := OfSecret(s, Policy{})
			_, err := Trim(s)
			must.Succeed(t, err)
			if len(s.Data) != 1 || cap(s.Data[Key]) > maxText*9/8 || s.ManagedFields != nil {
				t.Errorf("%d keys, %d bytes, %v are kept", len(s.Data), cap(s.Data[Key]), s.ManagedFields)
			}
			if _, after := OfSecret(s, Policy{}); after.Error() != before.Error() {
				t.Errorf("it is refused by %q, and was by %q", after, before)
			}
		})
	}
	none := &corev1.Secret{}
	if _, err := Trim(none); err != nil || none.Data != nil {
		t.Errorf("a Secret without a kubeconfig gets %v: %v", none.Data, err)
	}
}
