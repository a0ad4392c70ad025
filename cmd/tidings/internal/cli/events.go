package cli

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/cli-runtime/pkg/printers"
	"sigs.k8s.io/yaml"

	"github.com/tidings-io/tidings/cmd/tidings/internal/diff"
	"github.com/tidings-io/tidings/cmd/tidings/internal/termsafe"
)

// event is one event as watch prints it.
type event struct {
	cluster string // only if there are several
	kind    string // of the object
	change  string // ADDED, MODIFIED, DELETED
	// time is when the change arrived, zero if the object was there before.
	time time.Time
	meta metav1.Object
	// For the outputs that need more than the metadata. old is nil if it is
	// not known.
	object, old *unstructured.Unstructured
}

// eventFormat writes an event in one of the outputs of watch.
type eventFormat func(w io.Writer, e event) error

// eventFormats returns the outputs by name.
func eventFormats(line *eventLine) map[string]eventFormat {
	plain := func(write func(w io.Writer, e event)) eventFormat {
		return func(w io.Writer, e event) error { write(w, e); return nil }
	}
	return map[string]eventFormat{
		"line": plain(func(w io.Writer, e event) { fmt.Fprintln(w, line.of(e, true)) }),
		"wide": plain(func(w io.Writer, e event) { fmt.Fprintln(w, line.of(e, false)+details(e.object)) }),
		"diff": plain(func(w io.Writer, e event) {
			fmt.Fprintln(w, line.of(e, true))
			if e.change == "MODIFIED" {
				writeDiff(w, line.screen, e)
			}
		}),
		"json": plain(writeJSON),
		"yaml": plain(writeYAML),
	}
}

// printedBy returns the format of a printer of kubectl, for objects or for events.
func printedBy(p printers.ResourcePrinter, events bool) eventFormat {
	var text bytes.Buffer
	columns := printers.GetNewTabWriter(&text) // remembers their widths
	return func(w io.Writer, e event) error {
		o := runtime.Object(e.object)
		if events {
			o = &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "WatchEvent", "type": e.change, "object": e.object.Object}}
		}
		text.Reset()
		if err := p.PrintObj(o, columns); err != nil {
			return fmt.Errorf("print %s %s: %w", e.kind, e.meta.GetName(), err)
		}
		columns.Flush()
		_, err := io.WriteString(w, termsafe.Text(text.String()))
		return err
	}
}

// eventLine formats lines in columns. Later lines are not known yet, so a column
// is as wide as the widest text in it so far.
type eventLine struct {
	screen     *screen
	labels     []string // whose values get a column
	showLabels bool
	widths     [3]int // of cluster, kind and name
}

var eventColours = map[string]string{"ADDED": green, "MODIFIED": yellow, "DELETED": red}

// of returns the line of an event. If fit, it shortens the longest texts so that the
// line, without labels, has room on the terminal.
func (l *eventLine) of(e event, fit bool) string {
	when := "-"
	if !e.time.IsZero() {
		when = e.time.Local().Format(time.TimeOnly)
	}
	name := e.meta.GetName()
	if ns := e.meta.GetNamespace(); ns != "" {
		name = ns + "/" + name
	}
	version := termsafe.Line(e.meta.GetResourceVersion())
	texts := [3]string{termsafe.Line(e.cluster), termsafe.Line(e.kind), termsafe.Line(name)}
	if width := l.screen.streams.OutWidth; fit && width > 0 {
		// What is not shortened: two columns of 8, the version, and two spaces after
		// each column but the last.
		room := width - (8 + 2 + 8 + 2 + 2 + 2 + len(version))
		if texts[0] != "" {
			texts[0] = shorten(texts[0], room/4)
			room -= max(l.widths[0], utf8.RuneCountInString(texts[0])) + 2
		}
		texts[1] = shorten(texts[1], max(room/3, 10))
		room -= max(l.widths[1], utf8.RuneCountInString(texts[1]))
		texts[2] = shorten(texts[2], max(room, 16))
		l.widths[2] = min(l.widths[2], max(room, 16))
	}
	var b strings.Builder
	column := func(i int) {
		if n := utf8.RuneCountInString(texts[i]); n > 0 {
			l.widths[i] = max(l.widths[i], n)
			b.WriteString(texts[i] + strings.Repeat(" ", l.widths[i]-n+2))
		}
	}
	fmt.Fprintf(&b, "%-8s  ", when)
	column(0)
	b.WriteString(l.screen.paint(eventColours[e.change], e.change) + strings.Repeat(" ", max(0, 8-len(e.change))+2))
	column(1)
	column(2)
	b.WriteString(version)
	for _, key := range l.labels {
		b.WriteString("  " + orNone(termsafe.Line(e.meta.GetLabels()[key])))
	}
	if l.showLabels {
		b.WriteString("  " + termsafe.Line(labels.FormatLabels(e.meta.GetLabels())))
	}
	return b.String()
}

// shorten leaves out the middle of a text that is longer than width. The end of a name
// tells it from others of the same owner.
func shorten(s string, width int) string {
	runes := []rune(s)
	if len(runes) <= width {
		return s
	}
	end := width * 2 / 3
	return string(runes[:width-1-end]) + "…" + string(runes[len(runes)-end:])
}

func orNone(s string) string {
	if s == "" {
		return "<none>"
	}
	return s
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
	cells, _ := cellsOf(p, u, time.Now()) // cannot fail: the object was JSON
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
	if l := u.GetLabels(); len(l) > 0 {
		add("labels", labels.FormatLabels(l))
	}
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

// indent is before the lines of fields.
const indent = "    "

// writeDiff writes the changes of an object, below its line.
func writeDiff(w io.Writer, s *screen, e event) {
	if e.old == nil {
		fmt.Fprintln(w, indent+s.paint(faint, "(its previous state is not known)"))
		return
	}
	changes := diff.Objects(e.old.Object, e.object.Object)
	if len(changes) == 0 {
		fmt.Fprintln(w, indent+s.paint(faint, "(only its resourceVersion changed)"))
	}
	writeChanges(w, s, changes)
}

// writeChanges writes the changes of fields, below the line of their object.
func writeChanges(w io.Writer, s *screen, changes []diff.Change) {
	for _, c := range changes {
		for _, l := range c.Lines() {
			fmt.Fprintln(w, indent+s.paint(opColours[c.Op], l))
		}
	}
}

// writeJSON writes an event as JSON on one line.
func writeJSON(w io.Writer, e event) {
	var at *time.Time
	if !e.time.IsZero() {
		at = &e.time
	}
	encodeJSON(w, "", struct {
		Type    string                     `json:"type"`
		Time    *time.Time                 `json:"time,omitempty"`
		Cluster string                     `json:"cluster,omitempty"`
		Object  *unstructured.Unstructured `json:"object"`
	}{e.change, at, e.cluster, e.object}) // cannot fail: the object was JSON
}

// writeYAML writes the object as a YAML document, below a comment with the event.
func writeYAML(w io.Writer, e event) {
	text, err := yaml.Marshal(e.object.Object)
	if err != nil {
		text = []byte("# " + err.Error() + "\n")
	}
	head := e.change
	if !e.time.IsZero() {
		head += " at " + e.time.Format(time.RFC3339)
	}
	if e.cluster != "" {
		head += " in cluster " + e.cluster
	}
	fmt.Fprintf(w, "---\n# %s\n%s", termsafe.Line(head), text)
}
