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

	"github.com/tidings-io/tidings/cli/internal/diff"
	"github.com/tidings-io/tidings/internal/plain"
)

// news is one event as it is to be printed.
type news struct {
	cluster string // only where there are several
	kind    string
	event   string // ADDED, MODIFIED, DELETED
	meta    metav1.Object
	// For the outputs that need more than the metadata; old is nil where it is
	// not known.
	object, old *unstructured.Unstructured
}

// newsFormat writes news in one of the outputs of watch.
type newsFormat func(w io.Writer, n news)

// newsFormats are the outputs by name. s gives the colours.
func newsFormats(s *screen) map[string]newsFormat {
	line := &newsLine{screen: s}
	return map[string]newsFormat{
		"line": func(w io.Writer, n news) { fmt.Fprintln(w, line.of(n)) },
		"wide": func(w io.Writer, n news) { fmt.Fprintln(w, line.of(n)+details(n.object)) },
		"diff": func(w io.Writer, n news) {
			fmt.Fprintln(w, line.of(n))
			if n.event == "MODIFIED" {
				writeDiff(w, s, n)
			}
		},
		"json": writeJSON,
		"yaml": writeYAML,
	}
}

// newsLine writes lines with columns that are as wide as they have had to be so
// far: what comes next is not known.
type newsLine struct {
	screen  *screen
	widths  [4]int
	started bool
}

var eventColours = map[string]string{"ADDED": green, "MODIFIED": yellow, "DELETED": red}

func (l *newsLine) of(n news) string {
	if !l.started {
		l.widths, l.started = [4]int{0, len("MODIFIED"), 0, 40}, true
	}
	name := n.meta.GetName()
	if ns := n.meta.GetNamespace(); ns != "" {
		name = ns + "/" + name
	}
	created := "-"
	if t := n.meta.GetCreationTimestamp(); !t.IsZero() {
		created = t.UTC().Format(time.RFC3339)
	}
	var b strings.Builder
	for i, text := range []string{n.cluster, n.event, n.kind, name} {
		text = plain.Line(text)
		if text == "" {
			continue
		}
		l.widths[i] = max(l.widths[i], len(text))
		pad := strings.Repeat(" ", l.widths[i]-len(text)+2)
		if i == 1 {
			text = l.screen.paint(eventColours[n.event], text)
		}
		b.WriteString(text + pad)
	}
	// A fixed width for the time keeps the last column straight.
	fmt.Fprintf(&b, "%-20s  %s", created, plain.Line(n.meta.GetResourceVersion()))
	return b.String()
}

// details is what a wide line adds: the age, what a table would show of the
// kind, the owner and the labels.
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
	p := printerOf(u)
	cells, _ := cellsOf(p, u) // what came as JSON goes as JSON
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

// known is a cell as text, empty where it says that there is nothing to say.
func known(cell any) string {
	switch cell {
	case nil, "<none>", "<unset>", "<unknown>":
		return ""
	}
	return fmt.Sprint(cell)
}

var opColours = map[diff.Op]string{diff.Added: green, diff.Removed: red, diff.Changed: yellow}

// writeDiff writes below the line of an object what changed in it.
func writeDiff(w io.Writer, s *screen, n news) {
	const indent = "    "
	if n.old == nil {
		fmt.Fprintln(w, indent+s.paint(faint, "(its state before is not known)"))
		return
	}
	changes := diff.Objects(n.old.Object, n.object.Object)
	if len(changes) == 0 {
		fmt.Fprintln(w, indent+s.paint(faint, "(nothing but its resourceVersion)"))
	}
	for _, c := range changes {
		for _, l := range c.Lines() {
			fmt.Fprintln(w, indent+s.paint(opColours[c.Op], l))
		}
	}
}

// writeJSON writes one JSON object on a line of its own.
func writeJSON(w io.Writer, n news) {
	encodeJSON(w, "", struct {
		Type    string                     `json:"type"`
		Cluster string                     `json:"cluster,omitempty"`
		Object  *unstructured.Unstructured `json:"object"`
	}{n.event, n.cluster, n.object}) // what came as JSON goes as JSON
}

// writeYAML writes one document that says in comments what happened.
func writeYAML(w io.Writer, n news) {
	text, err := yaml.Marshal(n.object.Object)
	if err != nil {
		text = []byte("# " + err.Error() + "\n")
	}
	head := n.event
	if n.cluster != "" {
		head += " in cluster " + n.cluster
	}
	fmt.Fprintf(w, "---\n# %s\n%s", plain.Line(head), text)
}
