package load

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// A quantile of a histogram is that of what was added, but for 5 %.
func TestQuantile(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := rapid.SliceOfN(rapid.Int64Range(int64(2*time.Microsecond), int64(time.Minute)), 1, 200).Draw(t, "durations")
		q := rapid.Float64Range(0.01, 1).Draw(t, "q")
		h := &histogram{}
		for _, d := range all {
			h.add(time.Duration(d))
		}
		slices.Sort(all)
		at := int(q*float64(len(all))+0.999999) - 1
		want := time.Duration(all[min(max(at, 0), len(all)-1)])
		got := h.quantile(q)
		if low, high := float64(want)*0.94, float64(want)*1.06; float64(got) < low || float64(got) > high {
			t.Fatalf("quantile %v of %v is %v, want about %v", q, all, got, want)
		}
	})
}

func TestTimeOf(t *testing.T) {
	now := time.Unix(0, 1700000000123456789)
	for _, test := range []struct {
		frame string
		ok    bool
	}{
		{`{"type":"MODIFIED","object":{"data":{"made-at":"1700000000123456789","text":"x"}}}`, true},
		{`{"type":"BOOKMARK","object":{}}`, false},
		{`{"object":{"data":{"made-at":"17`, false},
		{`{"object":{"data":{"made-at":"x"}}}`, false},
	} {
		at, ok := timeOf([]byte(test.frame))
		if ok != test.ok || ok && !at.Equal(now) {
			t.Errorf("timeOf(%s) = %v, %v, want %v", test.frame, at, ok, test.ok)
		}
	}
}
