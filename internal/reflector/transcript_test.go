package reflector_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tidings-io/tidings/internal/delta"
	"github.com/tidings-io/tidings/internal/reflector"
	"github.com/tidings-io/tidings/internal/source"
)

var update = flag.Bool("update", false, "write what the reflector does into the transcripts")

// TestTranscripts runs the scripts in testdata. Lines with "<" are inputs: what the
// server does, or how much time passes. The lines after them are what the reflector
// does: "=" what it pushes, "*" a new phase, ">" a request, "end" the error of Run.
// With -update they are written anew. The inputs are
//
//	< start [key=value ...]  run the reflector; options: from, pagesize, plain
//	< added name@version     an event of the open watch; also modified, deleted
//	< bookmark version       a bookmark; initial-events-end is the one that ends the initial events
//	< eof                    the server ends the watch in good order
//	< page version [key=value ...] name@version ...
//	                         answers the open list; keys: continue, remaining; version: none
//	< error reason           fails the open request; for the reasons see serverError
//	< latest version         answers the request for the latest version
//	< wait duration          nothing happens for a time
//	< status                 prints version, counters and the last error
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d transcripts, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			script, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var got string
			synctest.Test(t, func(t *testing.T) { got = play(t, string(script)) })
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if diff := cmp.Diff(strings.Split(string(script), "\n"), strings.Split(got, "\n")); diff != "" {
				t.Errorf("the transcript differs (-file +reflector):\n%s", diff)
			}
		})
	}
}

// play runs a script and returns it with the lines that are the reflector's.
func play(t *testing.T, script string) string {
	p := &player{queue: delta.NewQueue[*meta](), answers: make(chan []string), latest: make(chan string), done: make(chan struct{})}
	ctx, cancel := context.WithCancel(t.Context())
	defer func() {
		cancel()
		<-p.done
	}()
	var out strings.Builder
	for line := range strings.Lines(script) {
		words := strings.Fields(line)
		switch {
		case len(words) == 0 || words[0] == "#":
			out.WriteString(line)
			continue
		case words[0] != "<":
			continue
		}
		out.WriteString(line)
		p.input(ctx, t, words[1:])
		synctest.Wait()
		for _, line := range p.output(t) {
			out.WriteString(line + "\n")
		}
	}
	return out.String()
}

// player is a source that does what a script says, and notes what the reflector does.
type player struct {
	reflector *reflector.Reflector[*meta]
	queue     *delta.Queue[*meta]
	answers   chan []string // for the open request
	latest    chan string
	done      chan struct{}

	mu               sync.Mutex
	phases, requests []string
	last             reflector.Status
}

func (p *player) input(ctx context.Context, t *testing.T, words []string) {
	switch words[0] {
	case "start":
		pageSize, _ := strconv.ParseInt(value(words, "pagesize"), 10, 64)
		p.reflector = reflector.New(target, p, p.queue, reflector.Options{
			From: value(words, "from"), PageSize: pageSize, PlainLists: slices.Contains(words, "plain"), Changed: p.changed,
		})
		go func() {
			defer close(p.done)
			if err := p.reflector.Run(ctx); ctx.Err() == nil {
				p.note(&p.requests, "end "+err.Error())
			}
		}()
	case "wait":
		d, err := time.ParseDuration(words[1])
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(d)
	case "status":
		s := p.reflector.Status()
		p.note(&p.phases, fmt.Sprintf("* status %v version=%q lists=%d watches=%d errors=%d received=%d/%d err=%v", s.Phase, s.ResourceVersion, s.Lists, s.Watches, s.Errors, s.Received, s.Expected, s.Err))
	case "latest":
		p.latest <- words[1]
	default:
		select {
		case p.answers <- words:
		case <-time.After(time.Hour):
			t.Fatalf("%q: no request is open", words)
		}
	}
}

// output returns what the reflector has done since the last call.
func (p *player) output(t *testing.T) (lines []string) {
	if p.queue.Len() > 0 {
		batch, err := p.queue.Pop(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range batch {
			lines = append(lines, "= "+describe(d))
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	slices.Sort(p.requests) // those for the latest version and for a watch are concurrent
	lines = append(append(lines, p.phases...), p.requests...)
	p.phases, p.requests = nil, nil
	return lines
}

func (p *player) note(lines *[]string, line string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	*lines = append(*lines, line)
}

func (p *player) changed() {
	s := p.reflector.Status()
	if line := "* " + s.Phase.String(); s.Phase != p.last.Phase {
		if s.Phase != reflector.Listing && s.Phase != reflector.Watching && s.Err != nil {
			line += ": " + strings.TrimPrefix(s.Err.Error(), "watch things of cluster test: ")
		}
		p.note(&p.phases, line)
	}
	p.last = s
}

func (p *player) List(ctx context.Context, opts source.ListOptions, each func(*meta) error) (source.ListResult, error) {
	p.note(&p.requests, fmt.Sprintf("> list limit=%d continue=%q", opts.Limit, opts.Continue))
	select {
	case <-ctx.Done():
		return source.ListResult{}, failed(context.Cause(ctx))
	case words := <-p.answers:
		if words[0] == "error" {
			return source.ListResult{}, failed(serverError(words[1]))
		}
		result := source.ListResult{ResourceVersion: strings.TrimPrefix(words[1], "none"), Continue: value(words, "continue"), Remaining: -1}
		if n, err := strconv.ParseInt(value(words, "remaining"), 10, 64); err == nil {
			result.Remaining = n
		}
		for _, word := range words[2:] {
			if name, version, ok := strings.Cut(word, "@"); ok {
				if err := each(thing(name, version)); err != nil {
					return result, err
				}
			}
		}
		return result, nil
	}
}

func (p *player) Watch(ctx context.Context, opts source.WatchOptions, each func(source.Event[*meta]) error) error {
	request := fmt.Sprintf("> watch from=%q", opts.ResourceVersion)
	if opts.InitialEvents {
		request = "> watch list"
	}
	p.note(&p.requests, request)
	types := map[string]source.EventType{"added": source.Added, "modified": source.Modified, "deleted": source.Deleted}
	for {
		select {
		case <-ctx.Done():
			return failed(context.Cause(ctx))
		case words := <-p.answers:
			e := source.Event[*meta]{Type: source.Bookmark}
			switch words[0] {
			case "eof":
				return nil
			case "error":
				return failed(serverError(words[1]))
			case "bookmark", "initial-events-end":
				e.ResourceVersion, e.InitialEventsEnd = words[1], words[0] == "initial-events-end"
			default:
				name, version, _ := strings.Cut(words[1], "@")
				e.Type, e.Object = types[words[0]], thing(name, version)
			}
			if err := each(e); err != nil {
				return err
			}
		}
	}
}

func (p *player) Latest(ctx context.Context) (string, error) {
	p.note(&p.requests, "> latest version")
	select {
	case version := <-p.latest:
		return version, nil
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

// value is that of key=value among words.
func value(words []string, key string) string {
	for _, word := range words {
		if v, ok := strings.CutPrefix(word, key+"="); ok {
			return v
		}
	}
	return ""
}

// serverError is the error of a reason in a script.
func serverError(reason string) error {
	things := schema.GroupResource{Resource: "things"}
	switch reason, seconds, _ := strings.Cut(reason, "="); reason {
	case "expired":
		return apierrors.NewResourceExpired("too old resource version")
	case "too-large":
		return &apierrors.StatusError{ErrStatus: metav1.Status{Reason: metav1.StatusReasonTimeout, Message: "Too large resource version", Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge}}}}}
	case "retry-after":
		n, _ := strconv.Atoi(seconds)
		return apierrors.NewTooManyRequests("slow down", n)
	case "forbidden":
		return apierrors.NewForbidden(things, "", errors.New("no right"))
	case "unauthorized":
		return apierrors.NewUnauthorized("no credentials")
	case "invalid":
		return apierrors.NewInvalid(schema.GroupKind{Kind: "ListOptions"}, "", nil)
	case "not-found":
		return apierrors.NewNotFound(things, "")
	case "gone":
		return &source.GoneError{Err: apierrors.NewNotFound(things, "")}
	case "undecodable":
		return &source.DecodeError{Err: errors.New("not a JSON object")}
	default:
		return errors.New(reason)
	}
}
