package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
	"time"
)

// TestMain lets the test's binary be the process of one side, too.
func TestMain(m *testing.M) {
	if os.Getenv(inChild) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// TestEveryLine measures every side of every line once, on very little.
func TestEveryLine(t *testing.T) {
	measured := map[string]results{}
	for i := range lines {
		l := &lines[i]
		t.Run(l.name, func(t *testing.T) {
			l := *l
			l.size = l.quick
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute) // the first time, programs are built
			defer cancel()
			got, err := l.measure(ctx, 1, "")
			if err != nil {
				t.Fatal(err)
			}
			measured[l.name] = got
			if len(l.claims) == 0 {
				t.Error("the table says nothing of it")
			}
			for _, c := range l.claims {
				ours, theirs, ratios := l.compare(c, got)
				if len(ours) != 1 || math.IsNaN(ours[0]) || math.IsInf(ours[0], 0) {
					t.Errorf("%s: side %q has no figure %q, but %v", c.what, c.side, c.figure, got[c.side])
				}
				if len(theirs) == 0 && c.peer != nobody || len(ratios) == 1 && math.IsNaN(ratios[0]) {
					t.Errorf("%s: there is nothing to compare %q of side %q with in %v", c.what, c.figure, c.side, got)
				}
			}
		})
	}
	if len(measured) < len(lines) {
		return // -run asks for some, or one has failed
	}
	var table strings.Builder
	printTable(&table, lines, measured, 1)
	t.Log("\n" + table.String())
	if strings.Contains(table.String(), "not measured") {
		t.Error("the table has a row that was not measured")
	}
}

// TestTable holds the table's rows, from figures that are given.
func TestTable(t *testing.T) {
	l := line{
		name:  "test",
		sides: []side{{name: "client-go"}, {name: "ours"}},
		claims: []claim{
			{number: 2, what: "second", figure: "MB", side: "ours", target: atMost(5)},
			{number: 1, what: "first", figure: "s", side: "ours", target: timesAtMost(0.5)},
			{number: 3, what: "third", figure: "alone", side: "ours", peer: nobody},
			{number: 4, what: "fourth", figure: "s", side: "client-go", target: timesAtLeast(2)},
		},
	}
	other := line{name: "other", sides: l.sides, claims: []claim{{number: 5, what: "fifth", figure: "s", side: "ours", target: atLeast(1)}}}
	got := results{}
	for i, ratio := range []float64{0.25, 0.5, 1, 0.4, 0.5} {
		got["client-go"] = append(got["client-go"], figures{"s": float64(i + 1), "MB": 3000})
		got["ours"] = append(got["ours"], figures{"s": ratio * float64(i+1), "MB": 6, "alone": 1234.5})
	}
	var out strings.Builder
	printTable(&out, []line{other, l}, map[string]results{"test": got}, 5)
	want := `| # | what | client-go | Tidings | ratio | target | |
|---:|---|---:|---:|---:|---|---|
| 1 | first | 3 (1–5) | 1.6 (0.25–3) | 0.5 (0.25–1) | ≤ 0.5× | met |
| 2 | second | 3000 (3000–3000) | 6 (6–6) | 0.002 (0.002–0.002) | ≤ 5 | **missed** |
| 3 | third | – | 1234 (1234–1234) | – | – |  |
| 4 | fourth | 3 (1–5) | 3 (1–5) | 1 (1–1) | ≥ 2× | **missed** |
| 5 | fifth | – | – | – | ≥ 1 | not measured |
`
	if got := out.String(); !strings.HasPrefix(got, want) || !strings.Contains(got[len(want):], "5 runs") {
		t.Errorf("the table is\n%s, not\n%s", got, want)
	}
	var details strings.Builder
	l.what = "Tests of %d"
	l.printDetails(&details, got)
	for _, want := range []string{"**Tests of 0** (5 runs each", "| | MB | ratio | alone | ratio | s | ratio |", fmt.Sprintf("| client-go | %s |", strings.Join([]string{"3000 (3000–3000)", "1 (1–1)", "–", "–", "3 (1–5)", "1 (1–1)"}, " | "))} {
		if !strings.Contains(details.String(), want) {
			t.Errorf("the details lack %q:\n%s", want, details.String())
		}
	}
}
