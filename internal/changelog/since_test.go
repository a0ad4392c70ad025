package changelog

import "testing"

// grow appends a batch of n events.
func grow(l *Log[int], n int, kind Kind, version uint64) {
	_, announce := l.Append(make([]int, n), kind, version, true)
	announce()
}

func TestSince(t *testing.T) {
	for _, tt := range []struct {
		name    string
		grow    func(*Log[int])
		since   uint64
		want    uint64 // version of the position found
		unknown bool
	}{
		{name: "before the first list", grow: func(*Log[int]) {}, since: 5, unknown: true},
		{name: "older than the first list", grow: func(l *Log[int]) { grow(l, 3, Relist, 10) }, since: 5, unknown: true},
		{name: "at the first list", grow: func(l *Log[int]) { grow(l, 3, Relist, 10) }, since: 10, want: 10},
		{name: "at an empty first list", grow: func(l *Log[int]) { grow(l, 0, Relist, 10) }, since: 10, want: 10},
		{name: "between two versions", grow: func(l *Log[int]) { grow(l, 3, Relist, 10); grow(l, 2, Changes, 14) }, since: 12, want: 10},
		{name: "before a relist", grow: func(l *Log[int]) { grow(l, 3, Relist, 10); grow(l, 2, Relist, 14) }, since: 10, want: 10},
		{name: "within a relist", grow: func(l *Log[int]) { grow(l, 3, Relist, 10); grow(l, 2, Relist, 14) }, since: 12, unknown: true},
		{name: "within a relist that found nothing", grow: func(l *Log[int]) { grow(l, 3, Relist, 10); grow(l, 0, Relist, 14) }, since: 12, unknown: true},
		{name: "at the end of a relist", grow: func(l *Log[int]) { grow(l, 3, Relist, 10); grow(l, 2, Relist, 14); grow(l, 1, Changes, 15) }, since: 14, want: 14},
		{name: "not there yet", grow: func(l *Log[int]) { grow(l, 3, Relist, 10); grow(l, 2, Changes, 14) }, since: 15, unknown: true},
		{name: "out of the window", grow: func(l *Log[int]) {
			grow(l, 3, Relist, 10)
			for v := range uint64(20) {
				grow(l, 1, Changes, 11+v)
			}
		}, since: 11, unknown: true},
		{name: "a number from before the source went back", grow: func(l *Log[int]) {
			grow(l, 1, Relist, 10)
			grow(l, 1, Changes, 11)
			grow(l, 1, Relist, 5)
			grow(l, 1, Changes, 12)
		}, since: 11, want: 5},
		{name: "a version from before the source went back", grow: func(l *Log[int]) {
			grow(l, 1, Relist, 10)
			grow(l, 1, Relist, 12)
			grow(l, 1, Relist, 11)
		}, since: 10, unknown: true},
		{name: "emptied", grow: func(l *Log[int]) { grow(l, 3, Relist, 10); grow(l, 3, Emptied, 0) }, since: 10, unknown: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := New[int](10)
			tt.grow(l)
			got, ok := l.Since(tt.since)
			if ok == tt.unknown || ok && got.ResourceVersion != tt.want {
				t.Fatalf("Since(%d) = %+v, %v; want version %d, unknown %v", tt.since, got, ok, tt.want, tt.unknown)
			}
		})
	}
}
