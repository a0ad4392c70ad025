package relations

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tidings-io/tidings/cluster"
	"github.com/tidings-io/tidings/internal/spelling"
)

// similar finds how a Service that selects no pods differs from the pods that it was most
// likely meant for: most of its labels are theirs, or nearly.
func (a *around) similar(o Object, pods cluster.Resource) (difference string) {
	wanted := texts(o.get("spec.selector"))
	keys := make([]string, 0, len(wanted))
	for key := range wanted {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	candidates, err := a.open([]cluster.Resource{pods}, o.Namespace)[0].all()
	if err != nil {
		a.cannotLook(pods.String(), err)
		return ""
	}
	best, count := (len(keys)+1)/2, 0 // fewer labels in common say nothing
	for _, p := range candidates {
		have := NewObject(p.JSON()).labels()
		score := 0
		var same, other []string
		for _, key := range keys {
			value, there := have[key]
			switch {
			case value == wanted[key] && there:
				score++
				same = append(same, key+"="+value)
				continue
			case there:
				other = append(other, fmt.Sprintf("%s=%s, not %s=%s", key, value, key, wanted[key]))
			case keyOf(have, wanted[key]) != "":
				value = wanted[key]
				other = append(other, fmt.Sprintf("%s=%s, not %s=%s", keyOf(have, value), value, key, value))
			default:
				other = append(other, "no "+key)
			}
			if near(value, wanted[key]) {
				score++
			}
		}
		if score < best {
			continue
		}
		text := strings.Join(append(same, other...), " and ")
		switch {
		case score > best || difference == "":
			best, count, difference = score, 1, text
		case text == difference:
			count++
		}
	}
	if count == 0 {
		return ""
	}
	have := "have"
	if count == 1 {
		have = "has"
	}
	return fmt.Sprintf("it selects no pods; %d of the namespace %s %s", count, have, difference)
}

// keyOf returns the first label that has a value, if it is told of more than a switch.
func keyOf(have map[string]string, value string) (found string) {
	for key, v := range have {
		if v == value && len(value) > 2 && value != "true" && value != "false" && (found == "" || key < found) {
			found = key
		}
	}
	return found
}

// near reports whether one text is probably the other with a slip: they differ in two
// letters at most, or one has the other in it.
func near(a, b string) bool {
	if min(len(a), len(b)) < 3 || max(len(a), len(b)) > 63 {
		return a == b
	}
	if strings.EqualFold(a, b) || strings.Contains(a, b) || strings.Contains(b, a) {
		return true
	}
	const slips = 2
	d := spelling.Distance(a, b, slips)
	return d <= slips && d < min(len(a), len(b))
}
