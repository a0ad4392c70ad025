package cli

import (
	"fmt"
	"strings"
	"time"
)

const (
	// A list that takes less time than this needs no progress line.
	progressAfter = 500 * time.Millisecond
	progressEvery = 200 * time.Millisecond
)

// count is the progress of a list.
type count struct {
	received int64
	expected int64 // -1 if unknown
}

// progressLine returns a line such as "pods: 12,000 of 50,000 objects".
func progressLine(what string, counts []count) string {
	var sum count
	for _, c := range counts {
		sum.received += c.received
		if c.expected < 0 || sum.expected < 0 {
			sum.expected = -1
		} else {
			sum.expected += max(c.expected, c.received)
		}
	}
	if sum.expected > sum.received {
		return fmt.Sprintf("%s: %s of %s objects", what, thousands(sum.received), thousands(sum.expected))
	}
	return fmt.Sprintf("%s: %s objects so far", what, thousands(sum.received))
}

// thousands formats a number with commas.
func thousands(n int64) string {
	digits := fmt.Sprint(n)
	var b strings.Builder
	for i, d := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 && digits[i-1] != '-' {
			b.WriteByte(',')
		}
		b.WriteRune(d)
	}
	return b.String()
}
