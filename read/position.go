package read

import (
	"math"
	"strconv"
	"strings"

	"github.com/tidings-io/tidings/mirror"
)

// position is one in what has happened: behind everything up to a version, and as
// many events more. Changes have versions of their own to resume at; the differences
// that a relist brings to light have one together, and are counted.
type position struct {
	version string // decimal, or "" before the first
	more    int
	begun   bool // a part may have been delivered of what there is, and there is no way on from there
}

// begun is the text of the position of one that may have seen a part of what there
// is, and cannot go on from there.
const begun = "0"

func (p position) String() string {
	if p.more == 0 {
		return p.version
	}
	return p.version + "." + strconv.Itoa(p.more)
}

// parsePosition reads what String writes, "1234" or "1234.5", and begun.
func parsePosition(s string) (position, error) {
	switch s {
	case "":
		return position{}, nil
	case begun:
		return position{begun: true}, nil
	}
	version, more, counted := strings.Cut(s, ".")
	p := position{version: version}
	v, err := strconv.ParseUint(version, 10, 64)
	if err == nil && counted {
		p.more, err = strconv.Atoi(more)
	}
	if err != nil || strconv.FormatUint(v, 10) != version || counted && (p.more <= 0 || p.more == math.MaxInt || strconv.Itoa(p.more) != more) {
		return position{}, mirror.Invalidf("%.80q is not a position to resume a watch at: hand back the id of the last event as it was, or a resourceVersion", s)
	}
	return p, nil
}
