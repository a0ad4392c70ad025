package object_test

import (
	"math"
	"strconv"
	"testing"

	"github.com/tidings-io/tidings/internal/object"
)

func FuzzVersion(f *testing.F) {
	for _, s := range []string{"", "0", "7", "007", "1234567890123456789", "9999999999999999999", strconv.FormatUint(math.MaxUint64, 10), "18446744073709551616", "99999999999999999999999", "-1", "+1", "1_0", "0x1", " 1", "1 ", "opaque"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		want, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			want = 0
		}
		if got := object.Version(s); got != want {
			t.Errorf("version %q is %d, not %d", s, got, want)
		}
	})
}
