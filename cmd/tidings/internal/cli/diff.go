package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/tidings-io/tidings/cmd/tidings/internal/diff"
	"github.com/tidings-io/tidings/cmd/tidings/internal/past"
	"github.com/tidings-io/tidings/cmd/tidings/internal/read"
	"github.com/tidings-io/tidings/cmd/tidings/internal/termsafe"
	"github.com/tidings-io/tidings/internal/object"
)

var diffOutputs = []string{"diff", "name", "json"}

func newDiff(g *globals) *cobra.Command {
	var output, from, to string
	cmd := &cobra.Command{
		Use:   "diff RESOURCE[,RESOURCE...] [NAME...] | RESOURCE/NAME ...",
		Short: "Print what differs between two moments",
		Long: `Diff compares the objects of two moments, and prints those that differ, field by
field:

  ~ Deployment shop/web  81240 → 81502
      ~ .spec.replicas: 2 → 3
  + Pod shop/web-7c6b9-x2x9p  81511
  - Pod shop/web-5d4f7-b8n2k  81120

+ is an object that was not there at the first moment, - one that is not there at the
second. The numbers are resourceVersions. An object that was changed and changed back is
the same.

A moment is a time, a duration before now such as -2h, or a resourceVersion. Without
--to it is now. It reads a server that keeps a history, or without any server a folder
that one has written.

The exit code is 0 if nothing differs, 1 if something does, and 2 after an error.`,
		Example: `  tidings diff deploy -l app=web --from -2h --server http://127.0.0.1:8888
  tidings diff deploy,cm -A --from -2h --to -1h -o json
  tidings diff deploy/web --from 2026-11-22T10:00:00Z --history copied/`,
		Args:              cobra.ArbitraryArgs,
		ValidArgsFunction: g.completeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New(`say of what, as in "tidings diff deploy --from -2h"`)
			}
			wanted, err := watchArgs(args)
			if err != nil {
				return err
			}
			if !slices.Contains(diffOutputs, output) {
				return unknownOutput(output, diffOutputs...)
			}
			if from == "" {
				return errors.New("say from which moment, as in --from -2h")
			}
			d := &differ{g: g, output: output, told: &remarks{notice: g.screen.notice}}
			now := time.Now()
			if d.from, err = parseAt("from", from, now); err != nil {
				return err
			}
			if to != "" {
				if d.to, err = parseAt("to", to, now); err != nil {
					return err
				}
			}
			return d.run(cmd.Context(), wanted)
		},
	}
	g.scopeFlags(cmd)
	g.serverFlag(cmd)
	g.folderFlags(cmd)
	f := cmd.Flags()
	f.StringVarP(&output, "output", "o", "diff", strings.Join(diffOutputs, ", "))
	f.StringVar(&from, "from", "", "the first `moment`")
	f.StringVar(&to, "to", "", "the second `moment` (default: now, or the newest of --history)")
	complete(cmd, "output", cobra.FixedCompletions(diffOutputs, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// errDiffers says that something differs. It is no error to be printed: the exit code
// says it.
var errDiffers = errors.New("something differs")

// differ prints what differs between two moments.
type differ struct {
	g        *globals
	output   string
	from, to read.Moment
	told     *remarks
	found    bool
}

func (d *differ) run(ctx context.Context, wanted []arg) error {
	return d.g.ofPast(ctx, wanted, func(targets []target, errs []error) error {
		if d.to == (read.Moment{}) {
			if d.to.Time = d.g.folder.newest; d.to.Time.IsZero() {
				d.to.Time = time.Now()
			}
		}
		for _, o := range targets {
			if err := d.compare(ctx, o); err != nil {
				errs = append(errs, err)
			}
		}
		if err := errors.Join(append(errs, d.g.screen.flush())...); err != nil || !d.found {
			return err
		}
		return errDiffers
	})
}

// keyed is an object of a list, with its key.
type keyed struct {
	key    string
	object *unstructured.Unstructured
}

// objectsAt yields the objects of a target at a moment. An error is yielded last.
func (d *differ) objectsAt(ctx context.Context, o target, at read.Moment) iter.Seq2[keyed, error] {
	return func(yield func(keyed, error) bool) {
		enough := errors.New("enough")
		err := d.g.pastList(ctx, o, at, d.told, func(raw json.RawMessage) error {
			u, err := decodeObject(raw)
			if err == nil && !yield(keyed{object.Key(u.GetNamespace(), u.GetName()), u}, nil) {
				err = enough
			}
			return err
		})
		if err != nil && err != enough {
			yield(keyed{}, doing(err, "read %s at %s", o, at))
		}
	}
}

// compare prints how the objects of a target differ. Both lists are read side by side, in
// the order of their keys, so that no more than a page of each is in memory.
func (d *differ) compare(ctx context.Context, o target) error {
	nextOld, stopOld := iter.Pull2(d.objectsAt(ctx, o, d.from))
	defer stopOld()
	nextNew, stopNew := iter.Pull2(d.objectsAt(ctx, o, d.to))
	defer stopNew()
	old, err, inOld := nextOld()
	if err != nil {
		return err
	}
	now, err, inNew := nextNew()
	for err == nil && (inOld || inNew) {
		order := cmp.Compare(old.key, now.key)
		switch {
		case !inOld:
			order = 1
		case !inNew:
			order = -1
		}
		var a, b *unstructured.Unstructured
		if order <= 0 {
			a = old.object
		}
		if order >= 0 {
			b = now.object
		}
		if err = d.print(o, a, b); err != nil {
			break
		}
		if order <= 0 {
			if old, err, inOld = nextOld(); err != nil {
				break
			}
		}
		if order >= 0 {
			now, err, inNew = nextNew()
		}
	}
	return err
}

// print prints an object if it differs; either may be nil.
func (d *differ) print(o target, old, now *unstructured.Unstructured) error {
	out := struct {
		Op        diff.Op                    `json:"op"`
		Cluster   string                     `json:"cluster,omitempty"`
		Resource  string                     `json:"resource"`
		Kind      string                     `json:"kind"`
		Namespace string                     `json:"namespace,omitempty"`
		Name      string                     `json:"name"`
		From      string                     `json:"from,omitempty"`
		To        string                     `json:"to,omitempty"`
		Fields    []past.Field               `json:"fields,omitempty"`
		Object    *unstructured.Unstructured `json:"object,omitempty"`
	}{Op: diff.Changed, Resource: o.resource.String(), Kind: o.resource.Kind}
	one := cmp.Or(now, old)
	out.Namespace, out.Name = one.GetNamespace(), one.GetName()
	if d.g.several {
		out.Cluster = o.cluster.Name()
	}
	var fields []diff.Change
	switch {
	case old == nil:
		out.Op, out.Object, out.To = diff.Added, now, now.GetResourceVersion()
	case now == nil:
		out.Op, out.Object, out.From = diff.Removed, old, old.GetResourceVersion()
	default:
		if fields = diff.Objects(old.Object, now.Object); len(fields) == 0 {
			return nil
		}
		out.From, out.To = old.GetResourceVersion(), now.GetResourceVersion()
		out.Fields = past.FieldsOf(fields)
	}
	d.found = true
	s := d.g.screen
	return s.print(false, func(w io.Writer) {
		if d.output == "json" {
			encodeJSON(w, "", out)
			return
		}
		line := strings.TrimPrefix(out.Cluster+" ", " ") + out.Kind + " " + object.Key(out.Namespace, out.Name)
		if d.output == "diff" {
			line += "  " + strings.TrimPrefix(strings.TrimSuffix(out.From+" → "+out.To, " → "), " → ")
		}
		fmt.Fprintln(w, s.paint(opColours[out.Op], termsafe.Line(string(out.Op)+" "+line)))
		if d.output == "diff" {
			writeChanges(w, s, fields)
		}
	})
}
