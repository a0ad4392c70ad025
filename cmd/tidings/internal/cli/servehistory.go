package cli

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tidings-io/tidings/cmd/tidings/internal/history"
)

// historyFlags are the flags of the history that a server keeps.
type historyFlags struct {
	dir     string
	keep    time.Duration
	size    string
	secrets bool
	thin    []string

	bytes   int64
	thinned map[string]time.Duration
}

// usuallyThinned are the resources of which few versions are kept.
var usuallyThinned = []string{"leases.coordination.k8s.io=1m", "events=1m", "events.events.k8s.io=1m"}

func (h *historyFlags) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&h.dir, "history", "", "`folder` to keep every version of what is mirrored in, so that \"tidings get --at\", history, diff and watch --since read the past (with --demo: in memory, unless a folder is named)")
	f.DurationVar(&h.keep, "history-for", 0, "how long versions are kept (default 168h)")
	f.StringVar(&h.size, "history-size", "", "disk `space` for the history, such as 10Gi; the oldest versions are dropped first (default 10Gi)")
	f.BoolVar(&h.secrets, "history-secrets", false, "keep the versions of Secrets too, if they are mirrored")
	f.StringArrayVar(&h.thin, "history-thin", usuallyThinned, "`resource=time`: keep at most one version of an object of a resource in that time; repeat it for several; resource=0 keeps all")
}

func (h *historyFlags) check() error {
	if h.keep < 0 || h.keep > 0 && h.keep < time.Hour {
		return fmt.Errorf("--history-for %v: give an hour or more, such as 168h", h.keep)
	}
	if h.size != "" {
		q, err := resource.ParseQuantity(h.size)
		if err != nil || q.Value() < 64<<20 {
			return fmt.Errorf("--history-size %q: give 64Mi or more, such as 10Gi", h.size)
		}
		h.bytes = q.Value()
	}
	h.thinned = map[string]time.Duration{}
	for _, given := range h.thin {
		name, value, ok := strings.Cut(given, "=")
		d, err := time.ParseDuration(value)
		if !ok || name == "" || err != nil || d < 0 {
			return fmt.Errorf("--history-thin %q: give a resource and a time, as in leases.coordination.k8s.io=1m", given)
		}
		if h.thinned[name] = d; d == 0 {
			delete(h.thinned, name)
		}
	}
	return nil
}

// demoRecorded are the resources of the demo that are mirrored from the start, so that they
// have a past.
var demoRecorded = []string{"pods", "deployments.apps", "replicasets.apps", "services", "configmaps", "nodes"}

// demoHistory bounds the history of the demo, in memory.
const demoHistory = 128 << 20

// open opens the history, nil if none is wanted. The caller must call done in the end.
func (h *historyFlags) open(demo bool, log *slog.Logger) (rec *history.Recording, done func() error, err error) {
	inMemory := demo && h.dir == ""
	if h.dir == "" && !inMemory {
		if h.keep != 0 || h.bytes != 0 || h.secrets {
			return nil, nil, errors.New("--history-for, --history-size and --history-secrets need a folder: --history DIR")
		}
		return nil, func() error { return nil }, nil
	}
	dir, size := h.dir, h.bytes
	if inMemory {
		dir = "history"
		size = cmp.Or(size, demoHistory)
	}
	store, err := history.Open(dir, history.Options{For: h.keep, Size: size, InMemory: inMemory, Logger: log})
	if err != nil {
		return nil, nil, err
	}
	if err := store.SetThinned(h.thinned); err != nil {
		return nil, nil, errors.Join(err, store.Close())
	}
	return history.NewRecording(store, history.RecordingOptions{Secrets: h.secrets, Thin: h.thinned}), store.Close, nil
}
