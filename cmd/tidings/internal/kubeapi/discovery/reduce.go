package discovery

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"mime"
	"net/http"
	"slices"
	"strings"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

// codecs decodes and encodes every form of discovery.
var codecs = func() serializer.CodecFactory {
	scheme := runtime.NewScheme()
	utilruntime.Must(apidiscoveryv2.AddToScheme(scheme))
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	// The beta of the aggregated form has the same fields.
	scheme.AddKnownTypes(schema.GroupVersion{Group: apidiscoveryv2.GroupName, Version: "v2beta1"}, &apidiscoveryv2.APIGroupDiscoveryList{})
	return serializer.NewCodecFactory(scheme)
}()

// reduced returns an answer about groups and resources without what a mirror cannot serve.
// It has an entity tag of its own.
func reduced(header http.Header, body []byte) (*answer, error) {
	mediaType, _, err := mime.ParseMediaType(header.Get("Content-Type"))
	if err != nil {
		return nil, unavailable(fmt.Sprintf("the discovery answer of the cluster has the media type %q: %v", header.Get("Content-Type"), err), 0)
	}
	info, ok := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), mediaType)
	if !ok {
		return nil, unavailable("the discovery answer of the cluster has an unsupported media type: "+mediaType, 0)
	}
	// Answers that are not aggregated may lack their apiVersion, which is v1.
	object, _, err := info.Serializer.Decode(body, &schema.GroupVersionKind{Version: "v1"}, nil)
	if err != nil {
		return nil, unavailable(fmt.Sprintf("decode the discovery answer of the cluster: %v", err), 0)
	}
	tagged := header.Get("Etag") != ""
	header = header.Clone()
	header.Del("Etag")
	switch o := object.(type) {
	case *metav1.APIResourceList:
		reduceList(o)
	case *apidiscoveryv2.APIGroupDiscoveryList:
		reduceGroups(o)
	default: // versions and groups are not reduced
		return newAnswer(http.StatusOK, header, body), nil
	}
	var out bytes.Buffer
	if err := info.Serializer.Encode(object, &out); err != nil {
		return nil, fmt.Errorf("encode a discovery answer as %s: %w", mediaType, err)
	}
	a := newAnswer(http.StatusOK, header, out.Bytes())
	if tagged {
		a.header.Set("Etag", fmt.Sprintf(`"%X"`, sha256.Sum256(out.Bytes())))
	}
	return a, nil
}

// reads are the verbs that a mirror serves.
var reads = []string{"get", "list", "watch"}

// selfReviews are the writes that a mirror serves: reviews of the caller itself.
var selfReviews = []schema.GroupResource{
	{Group: authorizationv1.GroupName, Resource: "selfsubjectaccessreviews"}, {Group: authorizationv1.GroupName, Resource: "selfsubjectrulesreviews"},
	{Group: authenticationv1.GroupName, Resource: "selfsubjectreviews"},
}

// possible returns the verbs of a resource that a mirror serves. It serves only resources
// that can be listed and watched.
func possible(group, resource string, verbs []string) []string {
	if slices.Contains(selfReviews, schema.GroupResource{Group: group, Resource: resource}) {
		return verbs
	}
	if !slices.Contains(verbs, "list") || !slices.Contains(verbs, "watch") {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(verbs), func(v string) bool { return !slices.Contains(reads, v) })
}

func reduceList(list *metav1.APIResourceList) {
	gv, _ := schema.ParseGroupVersion(list.GroupVersion)
	resources := []metav1.APIResource{}
	for _, r := range list.APIResources {
		if r.Verbs = possible(gv.Group, r.Name, r.Verbs); len(r.Verbs) > 0 && !strings.Contains(r.Name, "/") {
			resources = append(resources, r)
		}
	}
	list.APIResources = resources
}

func reduceGroups(list *apidiscoveryv2.APIGroupDiscoveryList) {
	for i := range list.Items {
		group := &list.Items[i]
		for j := range group.Versions {
			version := &group.Versions[j]
			var resources []apidiscoveryv2.APIResourceDiscovery
			for _, r := range version.Resources {
				if r.Verbs = possible(group.Name, r.Resource, r.Verbs); len(r.Verbs) > 0 {
					r.Subresources = nil
					resources = append(resources, r)
				}
			}
			version.Resources = resources
		}
	}
}
