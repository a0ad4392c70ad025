package agents

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/tidings-io/tidings/cmd/tidings/internal/past"
	"github.com/tidings-io/tidings/cmd/tidings/internal/relations"
)

// maxAlike is the number of objects of one kind and state below one owner, with nothing
// wrong and nothing below, that are listed.
const maxAlike = 3

// tree shows what belongs to an object.
func (c *call) tree() (*answer, error) {
	path, err := c.path(c.texts["resource"])
	if err != nil {
		return nil, err
	}
	values := url.Values{"tree": {"true"}}
	for name, v := range c.values("name", "namespace") {
		values[name] = v
	}
	if c.flags["neighbours"] {
		values.Set("neighbours", "true")
	}
	if moment := c.texts["moment"]; moment != "" {
		values.Set("at", moment)
	}
	var out struct {
		Data            *relations.Tree `json:"data"`
		ResourceVersion string          `json:"resourceVersion"`
		Moment          *past.Moment    `json:"moment"`
	}
	header, err := c.fetch(path, values, &out)
	if err != nil {
		return nil, err
	}
	t := out.Data
	if t == nil || t.Object == nil {
		return nil, wrongf("the server draws no trees")
	}
	a := c.answer()
	a.say("Tree of %s. version %s", c.of(), quote(out.ResourceVersion))
	d := &drawing{answer: a, now: time.Now()}
	if out.Moment != nil {
		a.moment(out.Moment)
		d.now = out.Moment.Time
	} else {
		a.freshness(header)
	}
	if cause := t.LikelyCause(); cause != "" {
		a.data("likely cause: " + cause)
	} else {
		a.say("No rule finds anything wrong with it or what it owns; that is no proof.")
	}
	for _, owner := range t.Owners {
		d.object("owner "+fmt.Sprint(-owner.Hops)+": ", "  ", owner)
	}
	if t.HiddenOwners > 0 {
		a.data(fmt.Sprintf("… %s that you may not see", plural(t.HiddenOwners, "owner", "owners")))
	}
	d.node("", t.Object)
	if t.Neighbours != nil {
		d.neighbours(t.Neighbours)
	}
	for _, u := range t.Unlooked {
		a.data("not looked at: " + u.Resource + ": " + cut(u.Why, 160))
	}
	return a, nil
}

type drawing struct {
	*answer
	now time.Time
}

// object adds the lines of one object.
func (d *drawing) object(lead, below string, n *relations.Node) {
	name := n.Ref.String()
	if n.Namespace != "" {
		name = n.Kind + "/" + n.Namespace + "/" + n.Name
	}
	line := strings.TrimRight(lead+name+"  "+n.State, " ")
	if n.Created != nil {
		line += "  " + duration.HumanDuration(d.now.Sub(*n.Created))
	}
	d.data(line)
	for _, f := range n.Wrong {
		d.data(below + "! " + f.Message + " (" + f.Field + ")")
	}
}

// node adds a node and what is below it: first what has something wrong.
func (d *drawing) node(indent string, n *relations.Node) {
	d.object(indent, indent+"  ", n)
	children := slices.Clone(n.Children)
	slices.SortStableFunc(children, func(a, b *relations.Node) int { return cmp.Compare(wrongs(b), wrongs(a)) })
	alike, folded := map[string]int{}, []string{}
	for _, child := range children {
		if len(child.Wrong) == 0 && len(child.Children) == 0 && child.Hidden+child.LeftOut == 0 {
			kind := strings.TrimRight(child.Kind+" "+child.State, " ")
			if alike[kind]++; alike[kind] > maxAlike {
				if alike[kind] == maxAlike+1 {
					folded = append(folded, kind)
				}
				continue
			}
		}
		d.node(indent+"  ", child)
	}
	for _, kind := range folded {
		d.data(fmt.Sprintf("%s  … %d more of %s", indent, alike[kind]-maxAlike, kind))
	}
	if n.Hidden > 0 {
		d.data(fmt.Sprintf("%s  … %s that you may not see", indent, plural(n.Hidden, "object", "objects")))
	}
	if n.LeftOut > 0 {
		d.data(fmt.Sprintf("%s  … %d more are left out", indent, n.LeftOut))
	}
}

// wrongs is the number of findings in a node and below it, up to one.
func wrongs(n *relations.Node) int {
	if len(n.Wrong) > 0 || slices.ContainsFunc(n.Children, func(c *relations.Node) bool { return wrongs(c) > 0 }) {
		return 1
	}
	return 0
}

// neighbours adds the lines of neighbours: first those that are missing or wrong.
func (d *drawing) neighbours(all *relations.Neighbours) {
	d.data("neighbours:")
	bad := func(n *relations.Neighbour) int {
		if n.Missing || len(n.Wrong) > 0 {
			return 1
		}
		return 0
	}
	objects := slices.Clone(all.Objects)
	slices.SortStableFunc(objects, func(a, b *relations.Neighbour) int { return cmp.Compare(bad(b), bad(a)) })
	for _, n := range objects {
		if n.Missing {
			n.State = "MISSING"
		}
		var links []string
		for _, l := range n.Links[:min(len(n.Links), 2)] {
			if l.From == n.Ref.String() {
				links = append(links, l.Relation+" "+l.To)
			} else {
				links = append(links, l.From+" "+l.Relation+" it")
			}
		}
		if more := len(n.Links) - len(links) + n.MoreLinks; more > 0 {
			links = append(links, fmt.Sprintf("and %d more", more))
		}
		name := n.Ref.String()
		if n.Namespace != "" {
			name = n.Kind + "/" + n.Namespace + "/" + n.Name
		}
		d.data(strings.TrimRight("  "+name+"  "+n.State, " ") + ": " + strings.Join(links, ", "))
		for _, f := range n.Wrong {
			d.data("    ! " + f.Message + " (" + f.Field + ")")
		}
	}
	if all.Hidden > 0 {
		d.data(fmt.Sprintf("  … %s that you may not see", plural(all.Hidden, "object", "objects")))
	}
	if all.LeftOut > 0 {
		d.data(fmt.Sprintf("  … %d more are left out", all.LeftOut))
	}
}
