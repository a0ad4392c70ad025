package read

import (
	"math"
	"strconv"
	"strings"

	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
)

// resumePoint is where a watch goes on: after all events up to a version, and a number
// of events more. Each change has a version of its own at which a watch can resume.
// The differences that a relist has found share one version and are counted.
type resumePoint struct {
	version string // decimal, or "" before the first
	more    int
	partial bool // the client may have only a part of the initial objects: the watch begins anew
}

// partial is the text of the resume point of a client that may have only a part of the
// initial objects, and must begin anew.
const partial = "0"

func (p resumePoint) String() string {
	if p.more == 0 {
		return p.version
	}
	return p.version + "." + strconv.Itoa(p.more)
}

// parseResumePoint parses the output of String, "1234" or "1234.5", and partial.
func parseResumePoint(s string) (resumePoint, error) {
	switch s {
	case "":
		return resumePoint{}, nil
	case partial:
		return resumePoint{partial: true}, nil
	}
	version, more, counted := strings.Cut(s, ".")
	p := resumePoint{version: version}
	v, err := strconv.ParseUint(version, 10, 64)
	if err == nil && counted {
		p.more, err = strconv.Atoi(more)
	}
	if err != nil || strconv.FormatUint(v, 10) != version || counted && (p.more <= 0 || p.more == math.MaxInt || strconv.Itoa(p.more) != more) {
		return resumePoint{}, mirror.Invalidf("%.80q is not a point at which a watch can resume: use the id of the last event unchanged, or a resourceVersion", s)
	}
	return p, nil
}
