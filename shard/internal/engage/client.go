package engage

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"

	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json" // which keeps large integers as they are
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-dev/tenure/shard/keyspace"
)

// OwnerUIDAnnotation has the UID of an object's owner where an owner reference can't: in another cluster. The object
// has its owner's slot.
const OwnerUIDAnnotation = "tenure.dev/owner-uid"

// ErrUnfenceable is returned for what no precondition can protect.
var ErrUnfenceable = errors.New("a sharded client can't fence this")

// EpochStamper is implemented by kinds whose status records the epoch of the tenure that wrote it. With the CEL rule
// "self >= oldSelf" on that field the API server itself refuses a stale epoch, at no extra write.
type EpochStamper interface {
	// StampEpoch raises the recorded epoch and returns what it was before. It never lowers it.
	StampEpoch(epoch int64) (before int64)
}

// fencedClient is the client that a reconciler gets. It puts on every write what safety needs, so that safety never
// depends on what a controller's author remembers.
type fencedClient struct {
	client.Client
	live client.Reader
	gate *Gate
	// owned reports whether the shard sees the kind's objects by their slot label alone; nil for no kind.
	owned func(runtime.Object) bool
}

// Create labels the object with its slot. If the object is there already, with the same controller, that one gets the
// label: the caller gets the error that it exists, and finds it the next time.
func (c *fencedClient) Create(ctx context.Context, obj client.Object, opts ...client.CreateOption) error {
	if obj.GetName() == "" && obj.GetGenerateName() != "" { // a review has no name, and isn't stored
		return fmt.Errorf("creating a %T: %w: generateName makes a new object on every try; derive metadata.name from the "+
			"owner", obj, ErrUnfenceable)
	}
	stampSlot(obj)
	err := c.Client.Create(ctx, obj, opts...)
	if !apierrors.IsAlreadyExists(err) || c.owned == nil || !c.owned(obj) ||
		len((&client.CreateOptions{}).ApplyOptions(opts).DryRun) > 0 {
		return err
	}
	if failed := c.adopt(ctx, obj); failed != nil {
		return fmt.Errorf("%w; %w", err, failed)
	}
	return err
}

// adopt labels the object that is there already, if it has the controller of the one that was to be created, and no
// slot. It is from before the program was sharded, so the shard's cache would never show it. About any other object
// that the shard doesn't see it returns an error: the caller would find neither what is in its way nor why.
func (c *fencedClient) adopt(ctx context.Context, obj client.Object) error {
	owner := metav1.GetControllerOf(obj)
	if owner == nil && obj.GetAnnotations()[OwnerUIDAnnotation] != "" {
		return nil
	}
	kind, err := c.GroupVersionKindFor(obj)
	if err != nil {
		return err
	}
	there := &metav1.PartialObjectMetadata{}
	there.SetGroupVersionKind(kind)
	switch err := c.live.Get(ctx, client.ObjectKeyFromObject(obj), there); {
	case apierrors.IsNotFound(err):
		return nil // it has gone meanwhile
	case err != nil:
		return fmt.Errorf("looking whether shard %s sees it: %w", c.gate.shard, err)
	case there.DeletionTimestamp != nil:
		return nil // its name will be free
	}
	label, labelled := there.Labels[keyspace.SlotLabel]
	if slot, err := keyspace.ParseSlot(label); err == nil && c.gate.shard.Prefix.ContainsSlot(slot) {
		return nil // it is seen, or will be once the cache has caught up
	}
	if owner == nil {
		return fmt.Errorf("shard %s doesn't see it: it has no label %s of the shard's, and the new object has no controller "+
			"to take it from: set one by controllerutil.SetControllerReference", c.gate.shard, keyspace.SlotLabel)
	}
	if has := metav1.GetControllerOf(there); labelled || has == nil || has.UID != owner.UID {
		return fmt.Errorf("shard %s doesn't see it: its controller isn't that of the new object, or its label %s (%q) is of "+
			"another shard: if nobody else owns it, delete it, or read it by GetAPIReader and update it with the right "+
			"controller, which sets the label", c.gate.shard, keyspace.SlotLabel, label)
	}
	before := there.DeepCopy()
	stampSlot(there)
	if err := c.Patch(ctx, there, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("giving it the label by which its shard sees it: %w", err)
	}
	return nil
}

// Apply stamps the slot label as Create does, since it may create the object.
func (c *fencedClient) Apply(ctx context.Context, obj runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
	stamped, err := plain(obj)
	if err != nil {
		return err
	}
	stampSlot(stamped)
	if err := c.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(stamped), opts...); err != nil {
		return err
	}
	data, err := json.Marshal(stamped.Object) // what the server answered goes back to the caller
	if err != nil {
		return fmt.Errorf("reading the answer to an apply of %T: %w", obj, err)
	}
	return json.Unmarshal(data, obj)
}

// plain converts an apply configuration to an untyped object.
func plain(obj runtime.ApplyConfiguration) (*unstructured.Unstructured, error) {
	data, err := json.Marshal(obj)
	if err != nil {
		return nil, fmt.Errorf("reading apply configuration %T: %w", obj, err)
	}
	same := &unstructured.Unstructured{}
	if err := json.Unmarshal(data, &same.Object); err != nil {
		return nil, fmt.Errorf("reading apply configuration %T: %w", obj, err)
	}
	return same, nil
}

func (c *fencedClient) Update(ctx context.Context, obj client.Object, opts ...client.UpdateOption) error {
	if err := needVersion("updating", obj); err != nil {
		return err
	}
	c.keepSlot(obj)
	return c.Client.Update(ctx, obj, opts...)
}

// keepSlot restores the slot label of an owned object, since the caller may have replaced the labels. Without it, the
// object would vanish from the shard.
func (c *fencedClient) keepSlot(obj client.Object) {
	if c.owned != nil && c.owned(obj) {
		stampSlot(obj)
	}
}

func (c *fencedClient) Patch(ctx context.Context, obj client.Object, patch client.Patch,
	opts ...client.PatchOption) error {
	if patch.Type() == types.ApplyPatchType {
		stampSlot(obj)
	}
	c.keepSlot(obj) // before the patch is made of it
	if c.owned != nil && c.owned(obj) && reflect.TypeOf(patch) == rawPatch && relabels(obj, patch) {
		return fmt.Errorf("patching %T %s with a fixed text: %w: it may take the label %s away, by which the shard sees the "+
			"object; use client.MergeFrom or Apply", obj, client.ObjectKeyFromObject(obj), ErrUnfenceable, keyspace.SlotLabel)
	}
	patch, err := versioned(obj, patch)
	if err != nil {
		return err
	}
	return c.Client.Patch(ctx, obj, patch, opts...)
}

// Delete needs the object's UID, unless the caller gives preconditions: another object may have the name by then.
func (c *fencedClient) Delete(ctx context.Context, obj client.Object, opts ...client.DeleteOption) error {
	if conditional(opts) {
		return c.Client.Delete(ctx, obj, opts...)
	}
	is, err := identity("deleting", obj)
	if err != nil {
		return err
	}
	// They come last, since empty preconditions among the options would replace them.
	return c.Client.Delete(ctx, obj, append(slices.Clip(opts), client.Preconditions(is))...)
}

// identity returns the preconditions that identify the object of a deletion.
func identity(act string, obj client.Object) (metav1.Preconditions, error) {
	uid, version := obj.GetUID(), obj.GetResourceVersion()
	if uid == "" {
		return metav1.Preconditions{}, fmt.Errorf("%s %T %s: %w: it has no UID; read it first, or give preconditions", act,
			obj, client.ObjectKeyFromObject(obj), ErrUnfenceable)
	}
	is := metav1.Preconditions{UID: &uid}
	if version != "" {
		is.ResourceVersion = &version
	}
	return is, nil
}

// conditional reports whether the caller's options identify the object.
func conditional(opts []client.DeleteOption) bool {
	return identifies((&client.DeleteOptions{}).ApplyOptions(opts).Preconditions)
}

// identifies reports whether preconditions identify an object.
func identifies(p *metav1.Preconditions) bool {
	return p != nil && (p.UID != nil || p.ResourceVersion != nil)
}

func (c *fencedClient) DeleteAllOf(_ context.Context, obj client.Object, _ ...client.DeleteAllOfOption) error {
	return fmt.Errorf("deleting all of a %T: %w: delete objects one by one", obj, ErrUnfenceable)
}

func (c *fencedClient) Status() client.SubResourceWriter { return c.SubResource("status") }

func (c *fencedClient) SubResource(name string) client.SubResourceClient {
	return &fencedSubResource{SubResourceClient: c.Client.SubResource(name), gate: c.gate, scheme: c.Scheme(), name: name}
}

type fencedSubResource struct {
	client.SubResourceClient
	gate   *Gate
	scheme *runtime.Scheme
	name   string
}

// Create adds preconditions to an eviction, since it deletes an object. Other subresources of Kubernetes are created
// as they are: a Pod is bound once, and a token isn't stored.
func (c *fencedSubResource) Create(ctx context.Context, obj, body client.Object,
	opts ...client.SubResourceCreateOption) error {
	if c.name == "eviction" {
		eviction, ok := body.(*policyv1.Eviction)
		if !ok {
			return fmt.Errorf("evicting %T %s by a %T: %w: give it a *policyv1.Eviction", obj,
				client.ObjectKeyFromObject(obj), body, ErrUnfenceable)
		}
		identified, err := identify(obj, eviction)
		if err != nil {
			return err
		}
		body = identified
	}
	return c.SubResourceClient.Create(ctx, obj, body, opts...)
}

// identify returns an eviction with preconditions: the caller's own, or those that the object's identity makes.
func identify(obj client.Object, eviction *policyv1.Eviction) (*policyv1.Eviction, error) {
	if eviction.DeleteOptions != nil && identifies(eviction.DeleteOptions.Preconditions) {
		return eviction, nil
	}
	is, err := identity("evicting", obj)
	if err != nil {
		return nil, err
	}
	eviction = eviction.DeepCopy() // the caller may use it for another one
	if eviction.DeleteOptions == nil {
		eviction.DeleteOptions = &metav1.DeleteOptions{}
	}
	eviction.DeleteOptions.Preconditions = &is
	return eviction, nil
}

func (c *fencedSubResource) Update(ctx context.Context, obj client.Object,
	opts ...client.SubResourceUpdateOption) error {
	body := obj // is what is sent
	if given := (&client.SubResourceUpdateOptions{}).ApplyOptions(opts).SubResourceBody; given != nil {
		body = given
		inheritVersion(body, obj)
	}
	if err := needVersion("updating", body); err != nil {
		return err
	}
	if err := c.stampEpoch(body); err != nil {
		return err
	}
	return c.SubResourceClient.Update(ctx, obj, opts...)
}

func (c *fencedSubResource) Patch(ctx context.Context, obj client.Object, patch client.Patch,
	opts ...client.SubResourcePatchOption) error {
	body := obj // is what the patch is made of
	if given := (&client.SubResourcePatchOptions{}).ApplyOptions(opts).SubResourceBody; given != nil {
		body = given
		if patch.Type() != types.ApplyPatchType {
			inheritVersion(body, obj)
		}
	}
	if err := c.stampEpoch(body); err != nil {
		return err
	}
	if _, stamps := body.(EpochStamper); stamps && c.name == "status" && reflect.TypeOf(patch) == rawPatch {
		return fmt.Errorf("patching the status of %T %s with a fixed text: %w: it is to tell the epoch; use client.MergeFrom",
			body, client.ObjectKeyFromObject(obj), ErrUnfenceable)
	}
	patch, err := versioned(body, patch)
	if err != nil {
		return err
	}
	return c.SubResourceClient.Patch(ctx, obj, patch, opts...)
}

// rawPatch is the type of patches that aren't made of the object.
var rawPatch = reflect.TypeOf(client.RawPatch("", nil))

// inheritVersion gives a body that wasn't read, such as a Scale, the version of the object that it is a part of. API
// servers compare it with that version.
func inheritVersion(body, obj client.Object) {
	if body.GetResourceVersion() == "" {
		body.SetResourceVersion(obj.GetResourceVersion())
	}
}

// Apply adds no precondition, and stamps no epoch: field ownership is the precondition, as with whole objects. So it
// can't be used for a status that must have the epoch.
func (c *fencedSubResource) Apply(ctx context.Context, obj runtime.ApplyConfiguration,
	opts ...client.SubResourceApplyOption) error {
	if c.name == "status" {
		same, err := plain(obj)
		if err != nil {
			return err
		}
		if err := c.needType(same); err != nil {
			return err
		}
	}
	return c.SubResourceClient.Apply(ctx, obj, opts...)
}

// needType refuses an object of another Go type than its kind's if the kind's status must have the epoch: only the Go
// type knows its field.
func (c *fencedSubResource) needType(obj client.Object) error {
	typed, err := c.scheme.New(obj.GetObjectKind().GroupVersionKind())
	if err != nil {
		return nil // the program doesn't know the kind
	}
	if _, stamps := typed.(EpochStamper); !stamps {
		return nil
	}
	return fmt.Errorf("writing the status of %s %s by a %T: %w: it is to tell the epoch; update or patch it by a %T",
		obj.GetObjectKind().GroupVersionKind().Kind, client.ObjectKeyFromObject(obj), obj, ErrUnfenceable, typed)
}

// stampEpoch writes the tenure's epoch into a status. It fails with [ErrFenced] if a later tenure has written that
// status: an ended tenure may have read it from a cache that is up to date.
func (c *fencedSubResource) stampEpoch(obj client.Object) error {
	if c.name != "status" {
		return nil
	}
	s, ok := obj.(EpochStamper)
	if !ok {
		return c.needType(obj)
	}
	epoch := int64(c.gate.Epoch())
	if before := s.StampEpoch(epoch); before > epoch {
		return fmt.Errorf("writing the status of %T %s in shard %s: %w: status.epoch is %d, and the shard is held here at "+
			"epoch %d; if it stays so, raise the epoch floor as the runbook says of objects from a later epoch",
			obj, client.ObjectKeyFromObject(obj), c.gate.shard, ErrFenced, before, epoch)
	}
	return nil
}

// stampSlot labels an object with the slot of what it belongs to, so that the owner's shard can watch it on any
// version of Kubernetes.
func stampSlot(obj client.Object) {
	uid := obj.GetAnnotations()[OwnerUIDAnnotation]
	if owner := metav1.GetControllerOf(obj); owner != nil {
		uid = string(owner.UID)
	}
	if uid == "" {
		return
	}
	slot := keyspace.SlotOf(uid).String()
	if obj.GetLabels()[keyspace.SlotLabel] == slot {
		return
	}
	labels := maps.Clone(obj.GetLabels()) // the map may also be a selector's, or another object's
	if labels == nil {
		labels = map[string]string{}
	}
	labels[keyspace.SlotLabel] = slot
	obj.SetLabels(labels)
}

// relabels reports whether a patch that isn't made of the object may change its labels.
func relabels(obj client.Object, patch client.Patch) bool {
	var fields struct {
		Metadata map[string]any `json:"metadata"`
	}
	data, err := patch.Data(obj)
	if err != nil || json.Unmarshal(data, &fields) != nil {
		return false // it can't be sent
	}
	_, labels := fields.Metadata["labels"]
	return labels || patch.Type() == types.ApplyPatchType
}

func needVersion(act string, obj client.Object) error {
	if obj.GetResourceVersion() == "" {
		return fmt.Errorf("%s %T %s: %w: it has no resourceVersion; read it first", act, obj,
			client.ObjectKeyFromObject(obj), ErrUnfenceable)
	}
	return nil
}

// versioned makes a patch conditional on the version of obj. Server-side apply is left alone: its field ownership is
// the precondition, and it names the object.
func versioned(obj client.Object, patch client.Patch) (client.Patch, error) {
	switch patch.Type() {
	case types.MergePatchType, types.StrategicMergePatchType:
		return versionedPatch{patch}, needVersion("patching", obj)
	case types.ApplyPatchType:
		return patch, nil
	}
	return nil, fmt.Errorf("patching %T %s with %s: %w: use a merge patch or server-side apply", obj,
		client.ObjectKeyFromObject(obj), patch.Type(), ErrUnfenceable)
}

// versionedPatch adds the object's resourceVersion to a merge patch. An empty patch stays empty.
type versionedPatch struct{ client.Patch }

func (p versionedPatch) Data(obj client.Object) ([]byte, error) {
	data, err := p.Patch.Data(obj)
	if err != nil || string(data) == "{}" {
		return data, err
	}
	var fields map[string]any
	if err := json.Unmarshal(data, &fields); err != nil {
		return nil, fmt.Errorf("reading the patch of %T %s: %w", obj, client.ObjectKeyFromObject(obj), err)
	}
	if fields == nil {
		return nil, fmt.Errorf("the patch of %T %s is null, and no object", obj, client.ObjectKeyFromObject(obj))
	}
	m, _ := fields["metadata"].(map[string]any)
	if m == nil {
		m = map[string]any{}
		fields["metadata"] = m
	}
	m["resourceVersion"] = obj.GetResourceVersion()
	return json.Marshal(fields)
}

// cachedClient reads declared kinds from the shard's caches, in the form in which they were declared (typed or
// metadata-only), and all others live.
type cachedClient struct {
	client.Client
	caches *caches
}

func (c *cachedClient) Get(ctx context.Context, key client.ObjectKey, obj client.Object,
	opts ...client.GetOption) error {
	return c.of(obj).Get(ctx, key, obj, opts...)
}

func (c *cachedClient) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	return c.of(list).List(ctx, list, opts...)
}

func (c *cachedClient) of(obj runtime.Object) client.Reader {
	if cached := c.caches.known(obj); cached != nil {
		return cached
	}
	return c.Client
}
