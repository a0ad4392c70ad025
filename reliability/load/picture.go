package load

import (
	"fmt"
	"image/color"
	"io"
	"math"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Markdown writes what was measured as a table.
func Markdown(w io.Writer, results []Result) {
	fmt.Fprint(w, "| watches | changes/s | events/s | made → delivered: half | 95 % | 99 % | most | not yet delivered | lists/s | lists: half | 99 % | refused | broken off | server: processors | memory | everything else: processors |\n")
	fmt.Fprint(w, "|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n")
	for _, r := range results {
		fmt.Fprintf(w, "| %d | %.0f | %.0f | %s | %s | %s | %s | %.1f %% | %.0f | %s | %s | %d | %d | %.2f | %d MB | %.2f |\n",
			r.Open, r.Made, r.Delivered, brief(r.Latency.P50), brief(r.Latency.P95), brief(r.Latency.P99), brief(r.Latency.Max), 100*r.Missing,
			r.ListsDone, brief(r.Lists.P50), brief(r.Lists.P99), r.Refused, r.Broken, r.CPU, r.RSS/1e6, r.Clients)
	}
	fmt.Fprintf(w, "\n%s\n", Knee(results))
}

func brief(d time.Duration) string {
	switch {
	case d >= time.Second:
		return fmt.Sprintf("%.2g s", d.Seconds())
	case d >= 10*time.Millisecond:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	}
	return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000)
}

// tooLate is when a change that is delivered is no news any more.
const tooLate = time.Second

// Knee says which step was the first that was too much, and what gave first.
func Knee(results []Result) string {
	for i, r := range results {
		why := ""
		switch {
		case r.Refused > 0:
			why = fmt.Sprintf("requests were refused: %d", r.Refused)
		case r.Broken > 0:
			why = fmt.Sprintf("answers broke off: %d", r.Broken)
		case r.Made < 0.9*float64(r.Changes):
			why = fmt.Sprintf("the cluster in memory made %.0f of %d changes a second; what it runs on had no more to give", r.Made, r.Changes)
		case r.Latency.P99 > tooLate:
			why = fmt.Sprintf("one of a hundred changes took longer than %s", tooLate)
		default:
			continue
		}
		before := "the first step was too much already"
		if i > 0 {
			last := results[i-1]
			before = fmt.Sprintf("%d watches and %d changes a second were fine", last.Open, last.Changes)
		}
		return fmt.Sprintf("The knee: %s. At %d watches and %d changes a second, %s. The server had %.2f processors, everything else %.2f.", before, r.Open, r.Changes, why, r.CPU, r.Clients)
	}
	return "No step was too much."
}

// Picture draws how long changes took to be delivered, by what there was to
// deliver a second, as SVG.
func Picture(w io.Writer, results []Result) error {
	p := plot.New()
	p.Title.Text = "From a change to its delivery"
	p.X.Label.Text = "events delivered a second"
	p.Y.Label.Text = "milliseconds"
	p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	p.Legend.Top, p.Legend.Left = true, true
	p.Add(plotter.NewGrid())
	for _, line := range []struct {
		name  string
		color color.RGBA
		of    func(Result) time.Duration
	}{
		{"half of them", color.RGBA{R: 0x2b, G: 0x6c, B: 0xb0, A: 0xff}, func(r Result) time.Duration { return r.Latency.P50 }},
		{"95 %", color.RGBA{R: 0xdd, G: 0x8a, B: 0x1b, A: 0xff}, func(r Result) time.Duration { return r.Latency.P95 }},
		{"99 %", color.RGBA{R: 0xb8, G: 0x32, B: 0x2a, A: 0xff}, func(r Result) time.Duration { return r.Latency.P99 }},
	} {
		points := make(plotter.XYs, 0, len(results))
		for _, r := range results {
			points = append(points, plotter.XY{X: r.Delivered, Y: math.Max(0.01, float64(line.of(r).Microseconds())/1000)})
		}
		drawn, dots, err := plotter.NewLinePoints(points)
		if err != nil {
			return fmt.Errorf("draw %s: %w", line.name, err)
		}
		drawn.Color, dots.Color, dots.Shape = line.color, line.color, draw.CircleGlyph{}
		p.Add(drawn, dots)
		p.Legend.Add(line.name, drawn, dots)
	}
	canvas := vgsvg.New(16*vg.Centimeter, 9*vg.Centimeter)
	p.Draw(draw.New(canvas))
	_, err := canvas.WriteTo(w)
	return err
}
