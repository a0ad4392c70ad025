package agents

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/tidings-io/tidings/cmd/tidings/internal/livetable"
)

const (
	defaultWait = 30
	maxWait     = 50
)

// MaxWait is the longest that a call may take because it waits for a condition.
const MaxWait = maxWait * time.Second

// condition is what is waited for.
type condition struct {
	exists  bool // the object is there
	absent  bool // it is not
	change  bool // it is another version than at first
	path    string
	value   string
	without bool // the field does not have the value
}

// parseCondition parses what is waited for, in the words of kubectl wait.
func parseCondition(text string) (condition, error) {
	bad := func() (condition, error) {
		return condition{}, wrongf("for: %s is not a condition: %s", quote(cut(text, 80)), arguments["for"].text)
	}
	switch text {
	case "create":
		return condition{exists: true}, nil
	case "delete":
		return condition{absent: true}, nil
	case "change":
		return condition{change: true}, nil
	}
	if rest, ok := strings.CutPrefix(text, "condition="); ok {
		kind, value, valued := strings.Cut(rest, "=")
		if !valued {
			value = "True"
		}
		c := condition{path: `.status.conditions[?(@.type=="` + kind + `")].status`, value: value}
		if _, ok := livetable.Lookup(c.path, []byte("{}")); !ok || kind == "" {
			return bad()
		}
		return c, nil
	}
	if rest, ok := strings.CutPrefix(text, "jsonpath={"); ok {
		text = strings.Replace(strings.Trim(rest, "'"), "}=", "=", 1)
	}
	at := strings.LastIndex(text, "=") // a path may have one
	if at < 1 {
		return bad()
	}
	c := condition{path: text[:at], value: text[at+1:]}
	if strings.HasSuffix(c.path, "!") {
		c.path, c.without = strings.TrimSuffix(c.path, "!"), true
	}
	if _, ok := livetable.Lookup(c.path, []byte("{}")); !ok || strings.HasSuffix(c.path, "=") {
		return bad()
	}
	return c, nil
}

// holds reports whether the condition holds for an object, nil if there is none; then says
// what it has instead.
func (c condition) holds(o map[string]any, versions int) (holds bool, instead string) {
	switch {
	case c.absent:
		return o == nil, "it exists"
	case o == nil:
		return false, "it does not exist"
	case c.exists:
		return true, ""
	case c.change:
		return versions > 1, "it has not changed"
	}
	content, err := json.Marshal(o)
	if err != nil {
		return false, err.Error()
	}
	v, _ := livetable.Lookup(c.path, content)
	text := v.String()
	if v.IsArray() {
		if all := v.Array(); len(all) == 1 {
			text = all[0].String()
		} else if len(all) == 0 {
			text = ""
		}
	}
	return (text == c.value) != c.without, c.path + " is " + cut(text, 200)
}

var errDeadline = errors.New("the deadline has passed")

// wait waits until a condition of an object holds.
func (c *call) wait() (*answer, error) {
	until, err := parseCondition(c.texts["for"])
	if err != nil {
		return nil, err
	}
	seconds, err := c.number("seconds", defaultWait, 1, maxWait)
	if err != nil {
		return nil, err
	}
	begun := time.Now()
	var cancel context.CancelFunc
	c.ctx, cancel = context.WithTimeoutCause(c.ctx, time.Duration(seconds)*time.Second, errDeadline)
	defer cancel()
	var last event
	held, instead, versions, synced := false, "it is not known", 0, false
	err = c.watch(func(e event) bool {
		switch e.Type {
		case "SYNCED", "RESET":
			synced = synced || e.Type == "SYNCED"
		case "DELETED":
			e.Object, versions = nil, versions+1
		case "":
			return true
		default:
			versions++
			withhold(e.Object)
		}
		if e.Type == "RESET" {
			return true
		}
		if e.Type == "SYNCED" {
			if e.Object = last.Object; e.ResourceVersion == "" {
				e.ResourceVersion = last.ResourceVersion
			}
		}
		last = e
		if !synced && e.Type != "SYNCED" {
			return true // the object as it is
		}
		held, instead = until.holds(last.Object, versions)
		return !held
	})
	if !held && !errors.Is(context.Cause(c.ctx), errDeadline) {
		if err == nil {
			err = &refusal{Reason: "Ended", Message: "the watch has ended"}
		}
		return nil, err
	}
	a := c.answer()
	version := last.ResourceVersion
	if meta, _ := last.Object["metadata"].(map[string]any); version == "" && meta != nil {
		version, _ = meta["resourceVersion"].(string)
	}
	after := ""
	if version != "" {
		after = " version " + quote(version)
	}
	if held {
		a.say("%s: %s holds, after %s.%s", c.of(), quote(c.texts["for"]), time.Since(begun).Round(100*time.Millisecond), after)
	} else {
		a.say("%s: %s does not hold after %ds. Call again to wait on.%s", c.of(), quote(c.texts["for"]), seconds, after)
		a.data(instead)
	}
	if fields := c.lists["fields"]; len(fields) > 0 && last.Object != nil {
		lines, err := project(last.Object, fields)
		if err != nil {
			return nil, err
		}
		for _, line := range lines {
			a.data(line)
		}
	}
	return a, nil
}

// event is an event of a watch.
type event struct {
	Type            string         `json:"type"`
	Object          map[string]any `json:"object"`
	ResourceVersion string         `json:"resourceVersion"`
}

// maxEvent is the size of an event that is read.
const maxEvent = 8 << 20

// watch watches the object of the call, until each returns false or the watch ends.
func (c *call) watch(each func(event) bool) error {
	path, err := c.path(c.texts["resource"])
	if err != nil {
		return err
	}
	values := c.values("name", "namespace")
	values.Set("watch", "true")
	response, err := c.do(path, values)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	defer context.AfterFunc(c.ctx, func() { _ = response.Body.Close() })()
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, maxEvent)
	ended := false
	for lines.Scan() {
		if lines.Text() == "event: end" {
			ended = true
		}
		content, isData := strings.CutPrefix(lines.Text(), "data: ")
		if !isData {
			continue
		}
		if ended {
			out := &refusal{}
			if json.Unmarshal([]byte(content), out) == nil && out.Reason != "" {
				return out
			}
			return io.ErrUnexpectedEOF
		}
		var e event
		if err := json.Unmarshal([]byte(content), &e); err != nil {
			return fmt.Errorf("read an event of %s: %w", path, err)
		}
		if !each(e) {
			return nil
		}
	}
	if c.ctx.Err() != nil {
		return context.Cause(c.ctx)
	}
	return lines.Err()
}
