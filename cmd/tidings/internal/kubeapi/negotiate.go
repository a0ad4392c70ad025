package kubeapi

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversionscheme "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1beta1 "k8s.io/apimachinery/pkg/apis/meta/v1beta1"
	"k8s.io/apimachinery/pkg/apis/meta/v1beta1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/client-go/kubernetes/scheme"
)

// media is the encoding of an answer.
type media uint8

const (
	asJSON media = iota
	asYAML
	asProtobuf
)

// content is the part of each object in an answer.
type content uint8

const (
	whole content = iota
	metadata
	table
)

// form is the requested form of an answer.
type form struct {
	media
	content
	mediaType string
	pretty    bool
	convert   *schema.GroupVersionKind // for metadata and table
	include   metav1.IncludeObjectPolicy
}

// group is the group and version of metadata and Tables.
func (f form) group() string { return f.convert.GroupVersion().String() }

// restrictions are the possible forms of answers about a kind.
type restrictions struct{ kind }

// AllowsMediaTypeTransform implements [negotiation.EndpointRestrictions].
func (r restrictions) AllowsMediaTypeTransform(mime, sub string, target *schema.GroupVersionKind) bool {
	if target == nil {
		return r.typed || mime+"/"+sub != runtime.ContentTypeProtobuf
	}
	if target.GroupVersion() != metav1.SchemeGroupVersion && target.GroupVersion() != metav1beta1.SchemeGroupVersion {
		return false
	}
	switch target.Kind {
	case "Table":
		return mime == "application" && (sub == "json" || sub == "yaml")
	case "PartialObjectMetadata", "PartialObjectMetadataList":
		return true
	}
	return false
}

// AllowsServerVersion implements [negotiation.EndpointRestrictions].
func (restrictions) AllowsServerVersion(version string) bool { return version == "v1" }

// AllowsStreamSchema implements [negotiation.EndpointRestrictions].
func (restrictions) AllowsStreamSchema(name string) bool { return name == "watch" }

// negotiate determines the form of the answer.
func (c *call) negotiate() error {
	options, info, err := negotiation.NegotiateOutputMediaType(c.r, scheme.Codecs, restrictions{c.kind})
	if err != nil {
		return err
	}
	c.form = form{mediaType: info.MediaType, convert: options.Convert}
	switch info.MediaType {
	case runtime.ContentTypeYAML:
		c.form.media = asYAML
	case runtime.ContentTypeProtobuf:
		c.form.media = asProtobuf
	}
	c.form.pretty = c.form.media == asJSON && info.Serializer == info.PrettySerializer
	if options.Convert != nil {
		c.form.content = metadata
		if options.Convert.Kind == "Table" {
			c.form.content = table
		}
	}
	return nil
}

// acceptable is the first check of the Accept header in kube-apiserver, for its own kinds:
// the header must name a supported media type, with any parameters.
func (c *call) acceptable() error {
	accept := c.r.Header.Get("Accept")
	if c.kind.custom || accept == "" {
		return nil
	}
	offers := []string{runtime.ContentTypeJSON, runtime.ContentTypeYAML, runtime.ContentTypeProtobuf}
	for _, clause := range strings.Split(accept, ",") {
		mime, _, _ := strings.Cut(clause, ";")
		if mime = strings.TrimSpace(mime); mime == "*/*" || slices.Contains(offers, mime) {
			return nil
		}
	}
	if c.Info.Verb != "get" {
		offers = append(offers, runtime.ContentTypeJSON+";stream=watch", runtime.ContentTypeProtobuf+";stream=watch")
	}
	out := plainStatus(http.StatusNotAcceptable, "NotAcceptable", "406: Not Acceptable\n\nAvailable representations: "+strings.Join(offers, ", "))
	out.ErrStatus.Details = &metav1.StatusDetails{}
	return out
}

// tableOptions parses the options of a Table.
func (c *call) tableOptions() error {
	if c.form.content != table {
		return nil
	}
	options := metav1.TableOptions{}
	if err := metainternalversionscheme.ParameterCodec.DecodeParameters(c.r.URL.Query(), metav1.SchemeGroupVersion, &options); err != nil {
		return err
	}
	switch errs := validation.ValidateTableOptions(&options); len(errs) {
	case 0:
	case 1:
		return apierrors.NewBadRequest(fmt.Sprintf("Unable to convert to Table as requested: %v", errs[0].Error()))
	default:
		return apierrors.NewBadRequest(fmt.Sprintf("Unable to convert to Table as requested: %v", errs))
	}
	if c.form.include = options.IncludeObject; c.form.include == "" {
		c.form.include = metav1.IncludeMetadata
	}
	return nil
}

// fits returns an error if the requested form is one of a list and the answer is an
// object, or the reverse.
func (c *call) fits(list bool) error {
	if c.form.content != metadata || list == (c.form.convert.Kind == "PartialObjectMetadataList") {
		return nil
	}
	if !list && c.kind.custom {
		return plainStatus(http.StatusInternalServerError, "", "content is not a list")
	}
	message := fmt.Sprintf("you requested PartialObjectMetadataList, but the requested object is not a list (%s)", c.kind.goType(""))
	if list {
		message = fmt.Sprintf("you requested PartialObjectMetadata, but the requested object is a list (%s)", c.kind.goType("List"))
	}
	return plainStatus(http.StatusNotAcceptable, "NotAcceptable", message)
}

// goType is the name of the Go type of a kind in kube-apiserver.
func (k kind) goType(list string) string {
	if k.custom {
		return "*unstructured.Unstructured" + list
	}
	group, _, _ := strings.Cut(k.gvk.Group, ".")
	if slices.Contains([]string{"", "events"}, group) {
		group = "core"
	}
	return "*" + group + "." + k.gvk.Kind + list
}
