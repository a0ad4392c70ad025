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

// arg is a resource on the command line, optionally with the name of an object.
type arg struct{ resource, name string }

// parseArgs parses the arguments of watch: resources, separated by commas or
// spaces, each optionally with a name.
func parseArgs(args []string) ([]arg, error) {
	var out []arg
	for _, text := range args {
		for part := range strings.SplitSeq(text, ",") {
			resource, name, named := strings.Cut(part, "/")
			if named {
				if err := validName(name); err != nil {
					return nil, err
				}
			}
			w := arg{resource, name}
			if resource == "" {
				return nil, fmt.Errorf("%q: say a resource like pods, pods/web-1, deployments.apps or deployments.v1.apps", text)
			}
			if !slices.Contains(out, w) {
				out = append(out, w)
			}
		}
	}
	return out, nil
}

// validName rejects names that would change the path of a request.
func validName(name string) error {
	if name == "" {
		return errors.New("a name is missing after the /")
	}
	if problems := content.IsPathSegmentName(name); len(problems) > 0 {
		return fmt.Errorf("the name %q %s", name, strings.Join(problems, ", "))
	}
	return nil
}

// target is the objects that an arg selects in one cluster.
type target struct {
	cluster   *cluster.Cluster
	resource  cluster.Resource
	namespace string // "" for all, or if the resource has none
	name      string // "" for all
	from      string // the resourceVersion from which to watch, "" for a list first
}

func (o target) String() string {
	s := o.resource.String()
	if o.name != "" {
		s += "/" + o.name
	}
	return s + " of cluster " + o.cluster.Name()
}

// fieldSelector adds the name to the user's selector.
func (o target) fieldSelector(selector string) string {
	if o.name == "" {
		return selector
	}
	return strings.TrimPrefix(selector+",metadata.name="+o.name, ",")
}

// find resolves args in a cluster. A category, such as "all", stands for each of
// its resources.
func (g *globals) find(ctx context.Context, c *cluster.Cluster, args []arg) ([]target, error) {
	var out []target
	for _, w := range args {
		resources, err := resolve(ctx, c, w.resource)
		if err != nil {
			return nil, err
		}
		for _, r := range resources {
			o := target{cluster: c, resource: r, name: w.name}
			if r.Namespaced {
				o.namespace = g.namespaceOf(c)
			}
			if !slices.ContainsFunc(out, func(p target) bool {
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
		return nil, inServersWords(ctx, c, err)
	}
	all, _ := c.Resources(ctx) // err says more
	all = slices.DeleteFunc(all, func(r cluster.Resource) bool { return !slices.Contains(r.Categories, arg) })
	if len(all) == 0 {
		return nil, err
	}
	return all, nil
}

// inServersWords returns the refusal of a discovery with the reason that the server
// gives. client-go's discovery does not read it, and says "unknown".
func inServersWords(ctx context.Context, c *cluster.Cluster, err error) error {
	if !apierrors.IsForbidden(err) {
		return err
	}
	_, refused := httpGet(ctx, c.HTTPClient(), c.BaseURL().JoinPath("api"), asObjects)
	if !apierrors.IsForbidden(refused) {
		return err
	}
	return fmt.Errorf("discover what cluster %s serves: %w", c.Name(), refused)
}

// retry calls do until it succeeds or fails permanently. It passes each failure to
// notice.
func retry(ctx context.Context, notice func(string), do func() error) error {
	const longest = 30 * time.Second
	for wait := time.Second; ; wait = min(2*wait, longest) {
		err := do()
		if err == nil || permanent(err) {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		notice(fmt.Sprintf("%s; trying again in %v", brief(err), wait))
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// permanent reports whether a retry would not help.
func permanent(err error) bool {
	var unknown *cluster.NotFoundError
	return errors.As(err, &unknown) || useless(err) || apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || apierrors.IsNotFound(err)
}
