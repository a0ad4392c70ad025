package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/tidings-io/tidings/cmd/tidings/internal/diff"
	"github.com/tidings-io/tidings/cmd/tidings/internal/past"
	"github.com/tidings-io/tidings/cmd/tidings/internal/termsafe"
)

// historyPrinter writes changes of the past.
type historyPrinter struct {
	screen *screen
	output string
	named  bool   // all changes are of one object: leave out its name
	many   bool   // there are several clusters
	layout string // of times
	widths [4]int // of cluster, kind and name, version, and writers
}

var historyOutputs = []string{"line", "diff", "json", "yaml"}

// print writes a change.
func (p *historyPrinter) print(c *change) error {
	var failed error
	err := p.screen.print(false, func(w io.Writer) { failed = p.write(w, c) })
	return cmp.Or(err, failed)
}

func (p *historyPrinter) write(w io.Writer, c *change) error {
	switch {
	case p.output == "json":
		return p.writeJSON(w, c)
	case p.output == "yaml" && c.gap == nil:
		u, err := decodeObject(c.Object)
		if err == nil {
			writeYAML(w, event{change: c.Type, time: c.Time.Local(), cluster: p.cluster(c), object: u})
		}
		return err
	case p.output == "yaml":
		fmt.Fprintf(w, "---\n# %s\n", termsafe.Line(p.about(c)+gapText(c.gap)))
		return nil
	}
	fmt.Fprintln(w, p.line(c))
	if p.output != "diff" || c.gap != nil || c.Type != "MODIFIED" {
		return nil
	}
	now, err := decodeObject(c.Object)
	var old *unstructured.Unstructured
	if err == nil && c.Before != nil {
		old, err = decodeObject(c.Before)
	}
	if err == nil {
		writeDiff(w, p.screen, event{object: now, old: old})
	}
	return err
}

func decodeObject(raw json.RawMessage) (*unstructured.Unstructured, error) {
	u := &unstructured.Unstructured{}
	if err := decode(raw, &u.Object); err != nil || u.Object == nil {
		return nil, fmt.Errorf("read an object of the history: %w", err)
	}
	return u, nil
}

func (p *historyPrinter) cluster(c *change) string {
	if !p.many {
		return ""
	}
	return c.target.cluster.Name()
}

// about says what a gap is of, unless that is clear.
func (p *historyPrinter) about(c *change) string {
	if p.named {
		return ""
	}
	return strings.TrimPrefix(p.cluster(c)+": ", ": ") + c.target.resource.String() + ": "
}

// line returns the line of a change. On a terminal it fits.
func (p *historyPrinter) line(c *change) string {
	if p.layout == "" { // the oldest comes first
		p.layout = time.TimeOnly
		if y, m, d := time.Now().Date(); c.when().Local().Before(time.Date(y, m, d, 0, 0, 0, 0, time.Local)) {
			p.layout = time.DateTime
		}
	}
	width := p.screen.streams.OutWidth
	when := c.when().Local().Format(p.layout)
	if c.gap != nil {
		until := "now"
		if c.gap.To != nil {
			until = c.gap.To.Local().Format(p.layout)
		}
		text := when + "  " + p.screen.paint(faint, termsafe.Line(fmt.Sprintf("GAP       %suntil %s %s: %s", p.about(c), until, gapMeaning(c.gap), c.gap.Reason)))
		return text
	}
	name := c.Name
	if c.Namespace != "" {
		name = c.Namespace + "/" + name
	}
	texts := [4]string{termsafe.Line(p.cluster(c)), termsafe.Line(c.target.resource.Kind + " " + name), termsafe.Line(c.ResourceVersion), termsafe.Line(c.writers())}
	if p.named {
		texts[1] = ""
	}
	room := width - len(when) - 2 - 10
	if width > 0 {
		texts[0] = shorten(texts[0], max(width/6, 8))
		texts[1] = shorten(texts[1], max(room*2/5, 16))
		texts[3] = shorten(texts[3], max(room/4, 12))
	}
	var b strings.Builder
	b.WriteString(when + "  " + p.screen.paint(eventColours[c.Type], c.Type) + strings.Repeat(" ", max(0, 8-len(c.Type))+2))
	for i, text := range texts {
		p.widths[i] = max(p.widths[i], utf8.RuneCountInString(text))
		if p.widths[i] > 0 {
			b.WriteString(text + strings.Repeat(" ", p.widths[i]-utf8.RuneCountInString(text)+2))
			room -= p.widths[i] + 2
		}
	}
	if width == 0 {
		room = 0
	}
	b.WriteString(fieldsText(c.Fields, room))
	return strings.TrimRight(b.String(), " ")
}

// fieldsText lists fields; those that have no room, if that is not 0, are counted.
func fieldsText(fields []past.Field, room int) string {
	text := ""
	for i, f := range fields {
		path := strings.TrimPrefix(termsafe.Line(f.Path), ".")
		if f.Op != diff.Changed {
			path = string(f.Op) + path
		}
		more := ""
		if n := len(fields) - i - 1; n > 0 {
			more = fmt.Sprintf(" +%d", n)
		}
		next := strings.TrimPrefix(text+" "+path, " ")
		if room == 0 || utf8.RuneCountInString(next+more) <= room {
			text = next
			continue
		}
		if left := fmt.Sprintf(" +%d", len(fields)-i); text != "" && utf8.RuneCountInString(text+left) <= room {
			return text + left
		}
		if text == "" {
			return shorten(path, max(room-len(more), 8)) + more
		}
		return text + "…"
	}
	return text
}

// historyJSON is a change or a gap as JSON.
type historyJSON struct {
	Type            string          `json:"type"`
	Time            time.Time       `json:"time"`
	Cluster         string          `json:"cluster,omitempty"`
	Resource        string          `json:"resource"`
	Kind            string          `json:"kind"`
	Namespace       string          `json:"namespace,omitempty"`
	Name            string          `json:"name,omitempty"`
	UID             string          `json:"uid,omitempty"`
	ResourceVersion string          `json:"resourceVersion,omitempty"`
	Writers         json.RawMessage `json:"writers,omitempty"`
	Relist          bool            `json:"relist,omitempty"`
	Fields          []past.Field    `json:"fields,omitempty"`
	Object          json.RawMessage `json:"object,omitempty"`
	Until           *time.Time      `json:"until,omitempty"`  // of a gap
	Reason          string          `json:"reason,omitempty"` // of a gap
	Late            bool            `json:"late,omitempty"`   // of a gap: see past.Gap
}

func (p *historyPrinter) writeJSON(w io.Writer, c *change) error {
	out := historyJSON{
		Type: c.Type, Time: c.when(), Cluster: p.cluster(c), Resource: c.target.resource.String(), Kind: c.target.resource.Kind,
		Namespace: c.Namespace, Name: c.Name, UID: c.UID, ResourceVersion: c.ResourceVersion,
		Writers: c.Writers, Relist: c.Relist, Fields: c.Fields, Object: c.Object,
	}
	if c.gap != nil {
		out.Type, out.Until, out.Reason, out.Late = "GAP", c.gap.To, c.gap.Reason, c.gap.Late
	}
	encodeJSON(w, "", out) // cannot fail: its parts were JSON
	return nil
}
