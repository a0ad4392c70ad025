package matrix

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

const (
	document   = "../../../docs/reliability.md"
	tableBegin = "<!-- matrix: made by go test ./matrix -update -->"
	tableEnd   = "<!-- end of matrix -->"
	measured   = 2 // columns at the end that differ from run to run
)

// table is the matrix as Markdown.
func table(t *testing.T, results map[string][]seen) string {
	var b strings.Builder
	b.WriteString("| fault | while | phase | the error says | log | counters that grow | a reader gets | *well again after* | *requests* |\n")
	b.WriteString("|---|---|---|---|---|---|---|---|---|\n")
	for _, row := range rows {
		all := results[row.name()]
		if len(all) == 0 {
			continue // not among those that -run chose
		}
		first := all[0]
		var took []time.Duration
		requests := int64(0)
		for _, s := range all {
			if s.phase != first.phase || s.err != first.err || s.log != first.log || s.counters != first.counters || s.reads != first.reads {
				t.Errorf("%s: what is seen differs from run to run:\n%+v\n%+v", row.name(), first, s)
			}
			took = append(took, s.recovered...)
			requests = max(requests, s.requests)
		}
		slices.Sort(took)
		median := (took[(len(took)-1)/2] + took[len(took)/2]) / 2
		for _, cell := range []string{row.Fault, string(row.While), first.phase, code(first.err), first.log, first.counters, first.reads,
			fmt.Sprintf("%.1f s", median.Seconds()), fmt.Sprint(requests)} {
			if cell == "" {
				cell = "–"
			}
			b.WriteString("| " + strings.ReplaceAll(cell, "|", "\\|") + " ")
		}
		b.WriteString("|\n")
	}
	return b.String()
}

func code(s string) string {
	if s == "" {
		return ""
	}
	return "`" + s + "`"
}

// compare checks or writes the table of the documentation.
func compare(t *testing.T, results map[string][]seen) {
	is := table(t, results)
	raw, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok := strings.Cut(string(raw), tableBegin+"\n")
	was, foot, ended := strings.Cut(rest, tableEnd)
	if !ok || !ended {
		t.Fatalf("%s has no place for the table: between %s and %s", document, tableBegin, tableEnd)
	}
	if *update {
		if len(results) < len(rows) {
			t.Fatal("-update takes a run of all rows")
		}
		if err := os.WriteFile(document, []byte(head+tableBegin+"\n"+is+tableEnd+foot), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	known := map[string]bool{}
	for line := range strings.Lines(was) {
		known[steady(line)] = true
	}
	for line := range strings.Lines(is) {
		if !known[steady(line)] {
			t.Errorf("%s does not have this row, or has it otherwise; run go test ./matrix -update:\n%s", document, line)
		}
	}
	if want := strings.Count(is, "\n"); len(results) == len(rows) && len(known) != want {
		t.Errorf("%s has %d rows, not %d", document, len(known), want)
	}
}

// steady is a row of the table without what is measured.
func steady(line string) string {
	cells := strings.Split(strings.TrimSpace(line), " | ")
	return strings.Join(cells[:max(0, len(cells)-measured)], " | ")
}
