package load

import (
	"cmp"
	"fmt"
	"image/color"
	"io"
	"math"
	"slices"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Markdown writes the results as a table.
func Markdown(w io.Writer, results []Result) {
	fmt.Fprint(w, "| watches | changes/s | events/s | made → delivered: half | 95 % | 99 % | most | not yet delivered | lists/s | lists: half | 99 % | refused | broken off | server: CPUs | memory | everything else: CPUs |\n")
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
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d >= 10*time.Millisecond:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	}
	return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000)
}

// maxLatency is the 99th percentile above which a step is too much.
const maxLatency = time.Second

// Knee describes the first step that was too much, and why.
func Knee(results []Result) string {
	for i, r := range results {
		why := ""
		switch {
		case r.Refused > 0:
			why = fmt.Sprintf("requests were refused: %d", r.Refused)
		case r.Broken > 0:
			why = fmt.Sprintf("responses were cut off: %d", r.Broken)
		case r.Made < 0.9*float64(r.Changes):
			why = fmt.Sprintf("the cluster in memory made %.0f of %d changes a second: the machine was too slow", r.Made, r.Changes)
		case r.Latency.P99 > maxLatency:
			why = fmt.Sprintf("one of a hundred changes took longer than %s", maxLatency)
		default:
			continue
		}
		before := "already the first step was too much"
		if i > 0 {
			last := results[i-1]
			before = fmt.Sprintf("%d watches and %d changes a second were fine", last.Open, last.Changes)
		}
		return fmt.Sprintf("The knee: %s. At %d watches and %d changes a second, %s. The server used %.2f CPUs, everything else %.2f.", before, r.Open, r.Changes, why, r.CPU, r.Clients)
	}
	return "No step was too much."
}

var (
	blue   = color.RGBA{R: 0x2b, G: 0x6c, B: 0xb0, A: 0xff}
	orange = color.RGBA{R: 0xdd, G: 0x8a, B: 0x1b, A: 0xff}
	red    = color.RGBA{R: 0xb8, G: 0x32, B: 0x2a, A: 0xff}
)

// Picture draws two charts as SVG: the latency of changes by events a second, and the
// server's memory by the number of watches.
func Picture(w io.Writer, results []Result) error {
	latency := plot.New()
	latency.Title.Text = "From a change to its delivery"
	latency.X.Label.Text = "events delivered a second"
	latency.Y.Label.Text = "milliseconds"
	latency.Y.Scale, latency.Y.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	latency.X.Min = 0
	latency.Legend.Top, latency.Legend.Left = true, true
	latency.Add(plotter.NewGrid())
	for _, line := range []struct {
		name  string
		color color.RGBA
		of    func(Result) time.Duration
	}{
		{"half of them", blue, func(r Result) time.Duration { return r.Latency.P50 }},
		{"95 %", orange, func(r Result) time.Duration { return r.Latency.P95 }},
		{"99 %", red, func(r Result) time.Duration { return r.Latency.P99 }},
	} {
		var points plotter.XYs
		for _, r := range results {
			points = append(points, plotter.XY{X: r.Delivered, Y: math.Max(0.01, float64(line.of(r).Microseconds())/1000)})
		}
		slices.SortFunc(points, func(a, b plotter.XY) int { return cmp.Compare(a.X, b.X) })
		if err := add(latency, line.name, line.color, points); err != nil {
			return err
		}
	}

	memory := plot.New()
	memory.Title.Text = "Memory of the server"
	memory.X.Label.Text = "open watches"
	memory.Y.Label.Text = "MB resident"
	memory.X.Min, memory.Y.Min = 0, 0
	memory.Add(plotter.NewGrid())
	var points plotter.XYs
	for _, r := range results {
		points = append(points, plotter.XY{X: float64(r.Open), Y: float64(r.RSS) / 1e6})
	}
	if err := add(memory, "", blue, points); err != nil {
		return err
	}

	canvas := vgsvg.New(16*vg.Centimeter, 15*vg.Centimeter)
	whole := draw.New(canvas)
	latency.Draw(draw.Crop(whole, 0, 0, 6*vg.Centimeter, 0))
	memory.Draw(draw.Crop(whole, 0, 0, 0, -9.5*vg.Centimeter))
	_, err := canvas.WriteTo(w)
	return err
}

// add draws points, and a line through them.
func add(p *plot.Plot, name string, color color.Color, points plotter.XYs) error {
	line, dots, err := plotter.NewLinePoints(points)
	if err != nil {
		return fmt.Errorf("draw %s: %w", p.Title.Text, err)
	}
	line.Color, dots.Color, dots.Shape = color, color, draw.CircleGlyph{}
	p.Add(line, dots)
	if name != "" {
		p.Legend.Add(name, line, dots)
	}
	return nil
}
