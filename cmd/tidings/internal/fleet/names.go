package fleet

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Subjects and names. The name of a cluster may have any characters; those of JetStream
// may not, so others are escaped as =XX.
const (
	logSubject       = "tidings.log."
	snapshotsSubject = "tidings.snapshots."
	askSubject       = "tidings.ask."

	logStream       = "TIDINGS_LOG_"
	snapshotsStream = "TIDINGS_SNAPSHOTS_"
)

// token is the name of a cluster in subjects, streams and keys.
func token(cluster string) string {
	var b strings.Builder
	for i := range len(cluster) {
		switch c := cluster[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-', c == '_':
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "=%02X", c)
		}
	}
	return b.String()
}

// fromToken is the reverse of token. ok is false for what token never returns.
func fromToken(escaped string) (cluster string, ok bool) {
	var b strings.Builder
	for i := 0; i < len(escaped); i++ {
		if escaped[i] != '=' {
			b.WriteByte(escaped[i])
			continue
		}
		var c byte
		if n, err := fmt.Sscanf(escaped[i:min(i+3, len(escaped))], "=%02X", &c); n != 1 || err != nil {
			return "", false
		}
		b.WriteByte(c)
		i += 2
	}
	cluster = b.String()
	return cluster, cluster != "" && token(cluster) == escaped
}

// feedName identifies what one informer mirrors: a resource in all namespaces, or in one.
type feedName struct {
	schema.GroupVersionResource
	Namespace string // empty: all
}

// everywhere stands for all namespaces. No namespace has this name.
const everywhere = "_all"

// token is like core.v1.pods._all. A group has no "_", so that can stand for its dots.
func (f feedName) token() string {
	group, namespace := strings.ReplaceAll(f.Group, ".", "_"), f.Namespace
	if group == "" {
		group = "core"
	}
	if namespace == "" {
		namespace = everywhere
	}
	return group + "." + f.Version + "." + f.Resource + "." + namespace
}

// feedOfToken is the reverse of feedName.token.
func feedOfToken(s string) (f feedName, ok bool) {
	parts := strings.Split(s, ".")
	if len(parts) != 4 {
		return f, false
	}
	f.Group, f.Version, f.Resource, f.Namespace = strings.ReplaceAll(parts[0], "_", "."), parts[1], parts[2], parts[3]
	if f.Group == "core" {
		f.Group = ""
	}
	if f.Namespace == everywhere {
		f.Namespace = ""
	}
	return f, f.token() == s && !strings.ContainsAny(s, "*> \t\r\n\x00")
}

// valid reports whether the token can be a part of a subject.
func (f feedName) valid() bool {
	same, ok := feedOfToken(f.token())
	return ok && same == f
}

// String is like "pods" or "deployments.apps in namespace shop".
func (f feedName) String() string {
	s := f.GroupResource().String()
	if f.Namespace != "" {
		s += " in namespace " + f.Namespace
	}
	return s
}
