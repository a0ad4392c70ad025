package cli

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/tidings-io/tidings/cmd/tidings/internal/relations"
	"github.com/tidings-io/tidings/cmd/tidings/internal/termsafe"
)

// treeDrawing draws a tree as lines of text.
type treeDrawing struct {
	screen *screen
	now    time.Time
	lines  []treeLine
}

// treeLine is an object, with its columns, or a remark about the one above it.
type treeLine struct {
	lead   string // the branches before it
	text   string
	cells  []string // of an object: its state and age
	colour string
}

func (d *treeDrawing) draw(w io.Writer, t *relations.Tree) {
	top := 0
	if len(t.Owners) > 0 {
		top = t.Owners[0].Hops
	}
	lead := ""
	branch := func(hops int) string {
		if hops == top {
			return ""
		}
		lead = strings.Repeat("   ", hops-top-1)
		return lead + "└─ "
	}
	for _, owner := range t.Owners {
		before := branch(owner.Hops)
		d.object(before, strings.Repeat(" ", utf8.RuneCountInString(before)), "", owner)
	}
	if t.HiddenOwners > 0 {
		d.remark("", fmt.Sprintf("… %s that you may not see above", countOf(t.HiddenOwners, "owner")), faint)
	}
	namespace := t.Object.Namespace
	before := branch(t.Object.Hops)
	d.node(before, strings.Repeat(" ", utf8.RuneCountInString(before)), namespace, t.Object)
	d.write(w)
	if t.Neighbours != nil {
		fmt.Fprintln(w, "\nNeighbours:")
		for _, n := range t.Neighbours.Objects {
			d.neighbour(namespace, n)
		}
		if n := t.Neighbours.Hidden; n > 0 {
			d.remark("  ", fmt.Sprintf("… %s that you may not see", countOf(n, "object")), faint)
		}
		if n := t.Neighbours.LeftOut; n > 0 {
			d.remark("  ", fmt.Sprintf("… %d more", n), faint)
		}
		d.write(w)
	}
	if cause := t.LikelyCause(); cause != "" {
		d.remark("", "Likely cause: "+cause, red)
		fmt.Fprintln(w)
		d.write(w)
	}
}

// node adds a node and what is below it. rest is before the lines below.
func (d *treeDrawing) node(lead, rest, namespace string, n *relations.Node) {
	more := ""
	if n.Hidden > 0 {
		more = fmt.Sprintf("… %s that you may not see", countOf(n.Hidden, "object"))
	}
	if n.LeftOut > 0 {
		more = strings.TrimPrefix(more+fmt.Sprintf(", … %d more", n.LeftOut), ", ")
	}
	below := rest
	if len(n.Children) > 0 {
		below += "│ "
	}
	d.object(lead, below, namespace, n)
	for i, child := range n.Children {
		if i == len(n.Children)-1 && more == "" {
			d.node(rest+"└─ ", rest+"   ", n.Namespace, child)
		} else {
			d.node(rest+"├─ ", rest+"│  ", n.Namespace, child)
		}
	}
	if more != "" {
		d.remark(rest+"└─ ", more, faint)
	}
}

// object adds the lines of one object. Its namespace is said if it is another one than
// that of its owner.
func (d *treeDrawing) object(lead, below, namespace string, n *relations.Node) {
	name := n.Ref.String()
	if n.Namespace != "" && n.Namespace != namespace && n.Hops > 0 {
		name = n.Kind + "/" + n.Namespace + "/" + n.Name
	}
	age := ""
	if n.Created != nil {
		age = duration.HumanDuration(d.now.Sub(*n.Created))
	}
	line := treeLine{lead: lead, text: name, cells: []string{n.State, age}}
	if len(n.Wrong) > 0 {
		line.colour = red
	}
	d.lines = append(d.lines, line)
	for _, f := range n.Wrong {
		d.remark(below, "! "+f.Message, red)
	}
	for _, f := range n.Unknown {
		d.remark(below, "? "+f.Message, faint)
	}
}

// neighbour adds the lines of a neighbour.
func (d *treeDrawing) neighbour(namespace string, n *relations.Neighbour) {
	if n.Missing {
		n.State = "missing"
	}
	d.object("  ", "    ", namespace, n.Node)
	if n.Missing {
		d.lines[len(d.lines)-1].colour = red
	}
	for i, l := range n.Links {
		self := n.Ref.String()
		text := l.From + " " + l.Relation + " it"
		if l.From == self {
			text = l.Relation + " " + l.To
		}
		others := len(n.Links) - 1 - i + n.MoreLinks
		if i == 1 && others > 0 {
			d.remark("    ", fmt.Sprintf("… and %d more", others+1), faint)
			break
		}
		d.remark("    ", text, faint)
	}
}

func (d *treeDrawing) remark(lead, text, colour string) {
	d.lines = append(d.lines, treeLine{lead: lead, text: text, colour: colour})
}

func countOf(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// write writes the lines and forgets them. On a terminal, names are shortened and remarks
// are wrapped so that a line has room.
func (d *treeDrawing) write(w io.Writer) {
	width := d.screen.streams.OutWidth
	size := func(s string) int { return utf8.RuneCountInString(s) }
	var widths [2]int // of the names with what is before them, and of the states
	age := 0
	for _, l := range d.lines {
		if l.cells != nil {
			widths[0] = max(widths[0], size(l.lead)+size(termsafe.Line(l.text)))
			widths[1] = max(widths[1], min(size(termsafe.Line(l.cells[0])), maxState))
			age = max(age, size(l.cells[1]))
		}
	}
	if width > 0 {
		widths[0] = min(widths[0], max(width-widths[1]-age-4, 24))
	}
	for _, l := range d.lines {
		text := termsafe.Line(l.text)
		if l.cells == nil {
			for i, part := range wrap(text, width-size(l.lead)) {
				if i > 0 {
					part = "  " + part
				}
				fmt.Fprintln(w, l.lead+d.screen.paint(l.colour, part))
			}
			continue
		}
		room := max(widths[0]-size(l.lead), 8)
		if width > 0 {
			text = shorten(text, room)
		}
		line := l.lead + d.screen.paint(l.colour, text) + strings.Repeat(" ", max(0, room-size(text)))
		state := shorten(termsafe.Line(l.cells[0]), maxState)
		line += "  " + state + strings.Repeat(" ", max(0, widths[1]-size(state))) + "  " + l.cells[1]
		fmt.Fprintln(w, strings.TrimRight(line, " "))
	}
	d.lines = d.lines[:0]
}

// maxState is the width of the column of states.
const maxState = 24

// wrap breaks text between words so that no line is longer than width, if that is
// possible. A width below 20 breaks nothing.
func wrap(text string, width int) (lines []string) {
	if width < 20 {
		return []string{text}
	}
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width-2 {
			lines, line = append(lines, line), ""
		}
		line = strings.TrimPrefix(line+" "+word, " ")
	}
	return append(lines, line)
}
