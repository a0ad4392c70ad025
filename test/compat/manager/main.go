// Command manager is an example of a controller-runtime manager whose caches run on
// the engine of Tidings. The only line that differs is marked.
//
// For every ConfigMap with the label copy=yes, the controller keeps a ConfigMap
// with the same data and the prefix copy-of- in its name.
package main

import (
	"context"
	"log"
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tidings-io/tidings/informer/clientgo"
)

func main() {
	config, err := ctrl.GetConfig()
	if err != nil {
		log.Fatal(err)
	}
	if err := run(ctrl.SetupSignalHandler(), config, ctrl.Options{
		Cache: cache.Options{NewInformer: clientgo.NewSharedIndexInformer}, // this is the line
	}); err != nil {
		log.Fatal(err)
	}
}

// run runs the controller until ctx ends.
func run(ctx context.Context, config *rest.Config, options ctrl.Options) error {
	options.Metrics = server.Options{BindAddress: "0"}
	manager, err := ctrl.NewManager(config, options)
	if err != nil {
		return err
	}
	labelled := predicate.NewPredicateFuncs(isLabelled)
	labelled.UpdateFunc = func(e event.UpdateEvent) bool { return isLabelled(e.ObjectOld) || isLabelled(e.ObjectNew) }
	if err := builder.ControllerManagedBy(manager).
		For(&corev1.ConfigMap{}, builder.WithPredicates(labelled)).
		Owns(&corev1.ConfigMap{}).
		Complete(&copier{manager.GetClient()}); err != nil {
		return err
	}
	return manager.Start(ctx)
}

func isLabelled(o client.Object) bool { return o.GetLabels()["copy"] == "yes" }

type copier struct{ client.Client }

// Reconcile creates, updates or deletes the copy of one ConfigMap.
func (c *copier) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	var original, have corev1.ConfigMap
	err := c.Get(ctx, request.NamespacedName, &original)
	if client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, err
	}
	wanted := err == nil && isLabelled(&original)
	err = c.Get(ctx, client.ObjectKey{Namespace: request.Namespace, Name: "copy-of-" + request.Name}, &have)
	if client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, err
	}
	there := err == nil
	if !wanted {
		if !there {
			return reconcile.Result{}, nil
		}
		return reconcile.Result{}, client.IgnoreNotFound(c.Delete(ctx, &have))
	}
	want := corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: original.Namespace, Name: "copy-of-" + original.Name},
		Data:       original.Data,
	}
	if err := ctrl.SetControllerReference(&original, &want, c.Scheme()); err != nil {
		return reconcile.Result{}, err
	}
	switch {
	case !there:
		return reconcile.Result{}, client.IgnoreAlreadyExists(c.Create(ctx, &want))
	case maps.Equal(have.Data, want.Data) && metav1.IsControlledBy(&have, &original):
		return reconcile.Result{}, nil
	}
	want.ResourceVersion = have.ResourceVersion
	return reconcile.Result{}, c.Update(ctx, &want)
}
