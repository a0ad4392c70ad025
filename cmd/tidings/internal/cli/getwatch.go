package cli

import (
	"context"
	"fmt"
	"io"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/cli-runtime/pkg/printers"
)

// follow prints what args name, and then each object that changes, until the server
// ends the watch. Like kubectl it does not watch again.
func (get *getter) follow(ctx context.Context, r *clusterGetter, args []string) error {
	if get.sortBy() != "" {
		get.g.screen.notice("warning: --sort-by will be ignored for the objects that change")
	}
	result := get.request(r, args).SingleResourceType().Do()
	infos, err := result.Infos()
	if err != nil {
		if get.ignoreNotFound && apierrors.IsNotFound(err) {
			return nil
		}
		return err
	}
	show := !get.watchOnly
	p, err := get.printer(infos[0].ResourceMapping(), &show, get.g.allNamespaces, false)
	if err != nil {
		return err
	}
	current, err := result.Object()
	if err != nil {
		return err
	}
	objects := []runtime.Object{current}
	version := "0" // from now on, beginning with the object as it is
	list := meta.IsListType(current)
	if list {
		if objects, err = meta.ExtractList(current); err == nil {
			version, err = meta.NewAccessor().ResourceVersion(current)
		}
		if err != nil {
			return err
		}
	}
	tabs := printers.GetNewTabWriter(get.out)
	write := func(change watch.EventType, o runtime.Object) error {
		if err := get.writeEvent(p, tabs, change, o); err != nil {
			return fmt.Errorf("print an object: %w", err)
		}
		return nil
	}
	for _, o := range objects {
		if err := write(watch.Added, o); err != nil {
			return err
		}
	}
	tabs.Flush()
	if err := get.out.flush(); err != nil {
		return err
	}
	// The watch of one object begins with the object as it is, which is printed.
	show = list
	events, err := result.Watch(version)
	if err != nil {
		return err
	}
	defer events.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case e, ok := <-events.ResultChan():
			if !ok {
				return nil
			}
			if err := write(e.Type, e.Object); err != nil {
				return err
			}
			tabs.Flush()
			if err := get.out.flush(); err != nil {
				return err
			}
			show = true
		}
	}
}

// writeEvent writes an object, or with --output-watch-events the event.
func (get *getter) writeEvent(p printers.ResourcePrinter, w io.Writer, change watch.EventType, o runtime.Object) error {
	if get.human() && get.serverPrint && change != watch.Error && decodeTable(o) == nil {
		t, err := makeTable(o, get.now())
		if err != nil {
			return err
		}
		o = t
	}
	if get.watchEvents {
		o = &metav1.WatchEvent{Type: string(change), Object: runtime.RawExtension{Object: o}}
	}
	return p.PrintObj(o, w)
}

// showing returns a printer that prints with p if *show is true. If it is not, p only
// gets to know the columns of a table: the tables of a watch come without.
func showing(show *bool, p printers.ResourcePrinter) printers.ResourcePrinter {
	return printers.ResourcePrinterFunc(func(o runtime.Object, w io.Writer) error {
		if *show {
			return p.PrintObj(o, w)
		}
		t, ok := o.(*metav1.Table)
		if !ok {
			return nil
		}
		t = t.DeepCopy()
		t.Rows = nil
		return p.PrintObj(t, w)
	})
}
