package virtual

import (
	"bytes"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"
)

const plainJSON = "application/json"

// ServeHTTP serves one request of a client.
func (c *Cluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	t, err := c.translate(r.Method, r.URL.Path)
	if err == nil && t.refused != "" {
		refuse(w, http.StatusForbidden, metav1.StatusReasonForbidden, t.refused)
		return
	}
	var out *http.Request
	if err == nil {
		out, err = c.request(r, t)
	}
	if err != nil {
		refuse(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, fmt.Sprintf("virtual cluster %s: %v", c.name, err))
		return
	}
	through := c.host.others
	if token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok &&
		subtle.ConstantTimeCompare([]byte(token), []byte(c.token)) == 1 {
		out.Header.Del("Authorization")
		through = c.host.admin
	}
	response, err := through.RoundTrip(out)
	if err != nil {
		panic(http.ErrAbortHandler) // the client sees what it would without us
	}
	defer response.Body.Close()
	if err := c.reply(w, r, t, response); err != nil {
		panic(http.ErrAbortHandler)
	}
}

// refuse answers as an API server that says no.
func refuse(w http.ResponseWriter, code int, reason metav1.StatusReason, message string) {
	w.Header().Set("Content-Type", plainJSON)
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(metav1.Status{ // a client that went away needs no answer
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure, Code: int32(code), Reason: reason, Message: message,
	})
}

// request is the client's in the API server's terms.
func (c *Cluster) request(r *http.Request, t target) (*http.Request, error) {
	out := r.Clone(r.Context())
	out.RequestURI, out.Host = "", c.host.upstream.Host
	out.URL.Scheme, out.URL.Host, out.URL.Path, out.URL.RawPath = c.host.upstream.Scheme, c.host.upstream.Host, t.path, ""
	query := r.URL.Query()
	if err := c.selected(query, t); err != nil {
		return nil, fmt.Errorf("field selector: %w", err)
	}
	out.URL.RawQuery = query.Encode()
	out.Header.Del("Connection")
	out.Header.Del("Accept-Encoding")
	// Of what the client would take, what we can read: JSON, also as a table or as metadata alone.
	accepted := slices.DeleteFunc(strings.Split(r.Header.Get("Accept"), ","), func(kind string) bool {
		return !strings.HasPrefix(strings.TrimSpace(kind), plainJSON)
	})
	out.Header.Set("Accept", strings.Join(append(accepted, plainJSON), ","))
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	if len(body) > 0 {
		if body, err = c.body(body, out.Header, t); err != nil {
			return nil, fmt.Errorf("body: %w", err)
		}
	}
	out.Body, out.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	if len(body) == 0 {
		out.Body = nil
	}
	return out, nil
}

// body translates what a client sends.
func (c *Cluster) body(body []byte, header http.Header, t target) ([]byte, error) {
	kind, _, _ := strings.Cut(header.Get("Content-Type"), ";")
	switch kind {
	case "application/vnd.kubernetes.protobuf":
		object, kind, err := clientgoscheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
		if err != nil {
			return nil, err
		}
		object.GetObjectKind().SetGroupVersionKind(*kind) // without it a server couldn't tell what it is
		if body, err = json.Marshal(object); err != nil {
			return nil, err
		}
		header.Set("Content-Type", plainJSON)
	case "application/json-patch+json":
		return body, nil // a patch of an existing object, whose namespace can't change
	case "application/apply-patch+yaml", "application/yaml":
		var err error
		if body, err = yaml.YAMLToJSON(body); err != nil {
			return nil, err
		}
	case plainJSON, "application/merge-patch+json", "application/strategic-merge-patch+json", "":
	default:
		return nil, fmt.Errorf("can't read %s", kind)
	}
	object, err := decode(body)
	if err != nil {
		return nil, err
	}
	translate(object, t, c.real)
	return json.Marshal(object)
}

// reply passes an answer on in the cluster's terms.
func (c *Cluster) reply(w http.ResponseWriter, r *http.Request, t target, response *http.Response) error {
	maps.Copy(w.Header(), response.Header)
	if !strings.HasPrefix(response.Header.Get("Content-Type"), plainJSON) { // logs, metrics, OpenAPI
		w.WriteHeader(response.StatusCode)
		_, err := io.Copy(w, response.Body)
		return err
	}
	if watch := r.URL.Query().Get("watch"); (watch == "true" || watch == "1") && response.StatusCode == http.StatusOK {
		w.WriteHeader(response.StatusCode)
		return c.stream(w, t, response.Body)
	}
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if object, err := decode(body); err == nil {
		c.show(object, t)
		if body, err = json.Marshal(object); err != nil {
			return err
		}
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(response.StatusCode)
	_, err = w.Write(body)
	return err
}

// stream passes on the events of a watch that are this cluster's.
func (c *Cluster) stream(w http.ResponseWriter, t target, from io.Reader) error {
	flush := http.NewResponseController(w).Flush
	if err := flush(); err != nil {
		return err
	}
	decoder := json.NewDecoder(from)
	for {
		var event struct {
			Type   string          `json:"type"`
			Object json.RawMessage `json:"object"`
		}
		if err := decoder.Decode(&event); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		object, err := decode(event.Object)
		if err != nil {
			return err
		}
		if event.Type != "BOOKMARK" && event.Type != "ERROR" && !c.has(object, t) {
			continue
		}
		c.show(object, t)
		if event.Object, err = json.Marshal(object); err != nil {
			return err
		}
		line, err := json.Marshal(event)
		if err != nil {
			return err
		}
		if _, err := w.Write(append(line, '\n')); err != nil {
			return err
		}
		if err := flush(); err != nil {
			return err
		}
	}
}

// object is JSON as it comes, numbers unread.
type object = map[string]any

func decode(body []byte) (object, error) {
	var o object
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber()
	if err := decoder.Decode(&o); err != nil {
		return nil, err
	}
	return o, nil
}

// show translates an answer: an object, a list, a table or a status.
func (c *Cluster) show(o object, t target) {
	shown := func(namespace string) string {
		name, _ := c.shown(namespace)
		return name
	}
	if items, ok := o["items"].([]any); ok {
		o["items"] = c.filter(items, t, func(item any) (object, bool) { one, ok := item.(object); return one, ok })
	}
	if rows, ok := o["rows"].([]any); ok {
		o["rows"] = c.filter(rows, t, func(row any) (object, bool) {
			r, _ := row.(object)
			one, ok := r["object"].(object)
			return one, ok
		})
	}
	if metadata, ok := o["metadata"].(object); ok && t.all {
		delete(metadata, "remainingItemCount") // it counts those of others
	}
	if message, ok := o["message"].(string); ok && o["kind"] == "Status" {
		o["message"] = strings.ReplaceAll(message, `"`+c.name+"-", `"`)
	}
	translate(o, t, shown)
}

// filter keeps what is this cluster's, translated.
func (c *Cluster) filter(all []any, t target, objectOf func(any) (object, bool)) []any {
	return slices.DeleteFunc(all, func(one any) bool {
		o, ok := objectOf(one)
		if !ok {
			return t.all // it isn't known whose it is
		}
		if !c.has(o, t) {
			return true
		}
		c.show(o, t)
		return false
	})
}

// has says whether an object of a list or watch is this cluster's.
func (c *Cluster) has(o object, t target) bool {
	if !t.all {
		return true
	}
	metadata, _ := o["metadata"].(object)
	name, _ := metadata["name"].(string)
	_, ours := c.shown(name)
	return ours
}

// namespacePaths are where objects name a namespace: their own, or that of another one in the same cluster.
var namespacePaths = [][]string{
	{"metadata", "namespace"}, {"involvedObject", "namespace"}, {"regarding", "namespace"}, {"related", "namespace"},
	{"spec", "resourceAttributes", "namespace"},
}

// translate changes the namespaces that an object names.
func translate(o object, t target, name func(string) string) {
	paths := namespacePaths
	if t.namespaces {
		paths = [][]string{{"metadata", "name"}, {"metadata", "labels", "kubernetes.io/metadata.name"}, {"details", "name"}}
	}
	for _, path := range paths {
		at := o
		for _, step := range path[:len(path)-1] {
			at, _ = at[step].(object)
		}
		if value, ok := at[path[len(path)-1]].(string); ok && value != "" {
			at[path[len(path)-1]] = name(value)
		}
	}
}
