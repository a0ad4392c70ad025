package hostile

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
)

// judgeAuditLog returns an error if the audit log of a mirror has what must not be in
// it: the content of an object, or a token. Names, and labels in selectors, are in it.
func (r *run) judgeAuditLog(m *mirror) error {
	f, err := os.Open(m.auditLog)
	if err != nil {
		return err
	}
	defer f.Close()
	var tokens []string
	for _, c := range r.anyone {
		if c.token != "" {
			tokens = append(tokens, c.token)
		}
	}
	events := 0
	lines := bufio.NewScanner(f)
	for lines.Buffer(nil, 1<<20); lines.Scan(); events++ {
		line := lines.Text()
		if err := r.world.judgeEvent(line, tokens); err != nil {
			return fmt.Errorf("the audit log of %s: %w: %s", m.name, err, line)
		}
	}
	if lines.Err() == nil && events == 0 {
		return fmt.Errorf("the audit log of %s is empty", m.name)
	}
	return lines.Err()
}

func (w *world) judgeEvent(line string, tokens []string) error {
	if strings.ContainsFunc(line, func(r rune) bool { return r < ' ' || r > '~' }) {
		return fmt.Errorf("a line is not plain text")
	}
	if i := slices.IndexFunc(tokens, func(t string) bool { return strings.Contains(line, t) }); i >= 0 {
		return fmt.Errorf("a line has the token %s", tokens[i])
	}
	for _, c := range canariesIn(line) {
		if p := w.canaries[c]; p.part == "content" || p.part == "annotation" {
			return fmt.Errorf("a line has %s", p)
		}
	}
	if !json.Valid([]byte(line)) {
		return fmt.Errorf("a line is not JSON")
	}
	return nil
}
