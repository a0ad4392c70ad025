package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"

	"github.com/tidings-io/tidings/cluster"
)

// wish is one resource asked for on the command line, perhaps with a name.
type wish struct{ resource, name string }

// wishes understands the arguments of watch: resources, separated by commas or
// spaces, each perhaps with a name.
func wishes(args []string) ([]wish, error) {
	var out []wish
	for _, arg := range args {
		for part := range strings.SplitSeq(arg, ",") {
			resource, name, named := strings.Cut(part, "/")
			if named {
				if err := validName(name); err != nil {
					return nil, err
				}
			}
			w := wish{resource, name}
			if resource == "" {
				return nil, fmt.Errorf("%q: say a resource like pods, pods/web-1, deployments.apps or deployments.v1.apps", arg)
			}
			if !slices.Contains(out, w) {
				out = append(out, w)
			}
		}
	}
	return out, nil
}

// validName refuses what would be another path in a request.
func validName(name string) error {
	if name == "" {
		return errors.New("a name is missing behind the /")
	}
	if problems := content.IsPathSegmentName(name); len(problems) > 0 {
		return fmt.Errorf("the name %q %s", name, strings.Join(problems, ", "))
	}
	return nil
}

// objects is what a wish means in one cluster.
type objects struct {
	cluster   *cluster.Cluster
	resource  cluster.Resource
	namespace string // "" for all, or where the resource has none
	name      string // "" for all
}

func (o objects) String() string {
	s := o.resource.String()
	if o.name != "" {
		s += "/" + o.name
	}
	return s + " of cluster " + o.cluster.Name()
}

// fieldSelector adds the name to what the user selects.
func (o objects) fieldSelector(users string) string {
	if o.name == "" {
		return users
	}
	return strings.TrimPrefix(users+",metadata.name="+o.name, ",")
}

// find says what the wishes mean in a cluster. A category ("all") means each
// of its resources.
func (g *globals) find(ctx context.Context, c *cluster.Cluster, wishes []wish) ([]objects, error) {
	var out []objects
	for _, w := range wishes {
		resources, err := resolve(ctx, c, w.resource)
		if err != nil {
			return nil, err
		}
		for _, r := range resources {
			o := objects{cluster: c, resource: r, name: w.name}
			if r.Namespaced {
				o.namespace = g.namespaceOf(c)
			}
			if !slices.ContainsFunc(out, func(p objects) bool {
				return p.resource.GVR() == o.resource.GVR() && p.name == o.name
			}) {
				out = append(out, o)
			}
		}
	}
	return out, nil
}

func resolve(ctx context.Context, c *cluster.Cluster, arg string) ([]cluster.Resource, error) {
	r, err := c.Resolve(ctx, arg)
	if err == nil {
		return []cluster.Resource{r}, nil
	}
	var unknown *cluster.NotFoundError
	if !errors.As(err, &unknown) {
		return nil, err
	}
	all, _ := c.Resources(ctx) // the error in hand says more
	all = slices.DeleteFunc(all, func(r cluster.Resource) bool { return !slices.Contains(r.Categories, arg) })
	if len(all) == 0 {
		return nil, err
	}
	return all, nil
}

// patiently does what needs the network, again and again until it works or is
// refused; say hears of each failure.
func patiently(ctx context.Context, say func(string), do func() error) error {
	const longest = 30 * time.Second
	for wait := time.Second; ; wait = min(2*wait, longest) {
		err := do()
		if err == nil || refused(err) {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		say(fmt.Sprintf("%s; trying again in %v", brief(err), wait))
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// refused says that asking again would not help.
func refused(err error) bool {
	var unknown *cluster.NotFoundError
	return errors.As(err, &unknown) || apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || apierrors.IsNotFound(err)
}
