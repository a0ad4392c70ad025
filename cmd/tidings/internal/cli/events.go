package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/yaml"

	"github.com/tidings-io/tidings/cmd/tidings/internal/diff"
	"github.com/tidings-io/tidings/cmd/tidings/internal/termsafe"
)

// event is one event as watch prints it.
type event struct {
	cluster string // only if there are several
	kind    string // of the object
	change  string // ADDED, MODIFIED, DELETED
	meta    metav1.Object
	// For the outputs that need more than the metadata. old is nil if it is
	// not known.
	object, old *unstructured.Unstructured
}

// eventFormat writes an event in one of the outputs of watch.
type eventFormat func(w io.Writer, e event)

// eventFormats returns the outputs by name. s provides the colours.
func eventFormats(s *screen) map[string]eventFormat {
	line := &eventLine{screen: s}
	return map[string]eventFormat{
		"line": func(w io.Writer, e event) { fmt.Fprintln(w, line.of(e)) },
		"wide": func(w io.Writer, e event) { fmt.Fprintln(w, line.of(e)+details(e.object)) },
		"diff": func(w io.Writer, e event) {
			fmt.Fprintln(w, line.of(e))
			if e.change == "MODIFIED" {
				writeDiff(w, s, e)
			}
		},
		"json": writeJSON,
		"yaml": writeYAML,
	}
}

// eventLine formats lines in columns. Later lines are not known yet, so a column
// is as wide as the widest text in it so far.
type eventLine struct {
	screen  *screen
	widths  [4]int
	started bool
}

var eventColours = map[string]string{"ADDED": green, "MODIFIED": yellow, "DELETED": red}

func (l *eventLine) of(e event) string {
	if !l.started {
		l.widths, l.started = [4]int{0, len("MODIFIED"), 0, 40}, true
	}
	name := e.meta.GetName()
	if ns := e.meta.GetNamespace(); ns != "" {
		name = ns + "/" + name
	}
	created := "-"
	if t := e.meta.GetCreationTimestamp(); !t.IsZero() {
		created = t.UTC().Format(time.RFC3339)
	}
	var b strings.Builder
	for i, text := range []string{e.cluster, e.change, e.kind, name} {
		text = termsafe.Line(text)
		if text == "" {
			continue
		}
		l.widths[i] = max(l.widths[i], len(text))
		pad := strings.Repeat(" ", l.widths[i]-len(text)+2)
		if i == 1 {
			text = l.screen.paint(eventColours[e.change], text)
		}
		b.WriteString(text + pad)
	}
	// A fixed width for the time keeps the last column straight.
	fmt.Fprintf(&b, "%-20s  %s", created, termsafe.Line(e.meta.GetResourceVersion()))
	return b.String()
}

// details returns what a wide line adds: the age, the columns of the kind's
// table, the owner and the labels.
func details(u *unstructured.Unstructured) string {
	var b strings.Builder
	add := func(key, value string) {
		if value != "" {
			if strings.ContainsFunc(value, func(r rune) bool { return r == ' ' || r == '"' || !unicode.IsPrint(r) }) {
				value = fmt.Sprintf("%q", value)
			}
			b.WriteString("  " + key + "=" + value)
		}
	}
	if born := u.GetCreationTimestamp(); !born.IsZero() {
		add("age", since(born.Time))
	}
	p := printerFor(u)
	cells, _ := cellsOf(p, u) // cannot fail: the object was JSON
	for i, c := range p.Columns() {
		if name := strings.ToLower(strings.NewReplacer(" ", "-", "(s)", "s").Replace(c.Name)); i < len(cells) && name != "name" && name != "age" {
			add(name, known(cells[i]))
		}
	}
	for _, owner := range u.GetOwnerReferences() {
		if owner.Controller != nil && *owner.Controller || len(u.GetOwnerReferences()) == 1 {
			add("owner", owner.Kind+"/"+owner.Name)
		}
	}
	var labels []string
	for k, v := range u.GetLabels() {
		labels = append(labels, k+"="+v)
	}
	slices.Sort(labels)
	add("labels", strings.Join(labels, ","))
	if u.GetDeletionTimestamp() != nil {
		add("deleting", since(u.GetDeletionTimestamp().Time))
	}
	return b.String()
}

func since(t time.Time) string { return duration.HumanDuration(time.Since(t)) }

// known returns a cell as text, empty if the cell has no value.
func known(cell any) string {
	switch cell {
	case nil, "<none>", "<unset>", "<unknown>":
		return ""
	}
	return fmt.Sprint(cell)
}

var opColours = map[diff.Op]string{diff.Added: green, diff.Removed: red, diff.Changed: yellow}

// writeDiff writes the changes of an object, below its line.
func writeDiff(w io.Writer, s *screen, e event) {
	const indent = "    "
	if e.old == nil {
		fmt.Fprintln(w, indent+s.paint(faint, "(its previous state is not known)"))
		return
	}
	changes := diff.Objects(e.old.Object, e.object.Object)
	if len(changes) == 0 {
		fmt.Fprintln(w, indent+s.paint(faint, "(only its resourceVersion changed)"))
	}
	for _, c := range changes {
		for _, l := range c.Lines() {
			fmt.Fprintln(w, indent+s.paint(opColours[c.Op], l))
		}
	}
}

// writeJSON writes an event as JSON on one line.
func writeJSON(w io.Writer, e event) {
	encodeJSON(w, "", struct {
		Type    string                     `json:"type"`
		Cluster string                     `json:"cluster,omitempty"`
		Object  *unstructured.Unstructured `json:"object"`
	}{e.change, e.cluster, e.object}) // cannot fail: the object was JSON
}

// writeYAML writes the object as a YAML document, below a comment with the event.
func writeYAML(w io.Writer, e event) {
	text, err := yaml.Marshal(e.object.Object)
	if err != nil {
		text = []byte("# " + err.Error() + "\n")
	}
	head := e.change
	if e.cluster != "" {
		head += " in cluster " + e.cluster
	}
	fmt.Fprintf(w, "---\n# %s\n%s", termsafe.Line(head), text)
}
