// Command manager is an example of a controller-runtime manager whose caches
// run on the engine of Tidings. The one line that makes it so is marked.
//
// The controller keeps, for every ConfigMap with the label copy=yes, a ConfigMap
// with the same data whose name begins with copy-of-.
package main

import (
	"context"
	"log"
	"maps"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
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
	labelled := predicate.NewPredicateFuncs(func(o client.Object) bool { return o.GetLabels()["copy"] == "yes" })
	if err := builder.ControllerManagedBy(manager).
		For(&corev1.ConfigMap{}, builder.WithPredicates(labelled)).
		Owns(&corev1.ConfigMap{}).
		Complete(&copier{manager.GetClient()}); err != nil {
		return err
	}
	return manager.Start(ctx)
}

type copier struct{ client.Client }

// Reconcile makes the copy of one ConfigMap what it should be.
func (c *copier) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	var original, have corev1.ConfigMap
	if err := c.Get(ctx, request.NamespacedName, &original); err != nil {
		if apierrors.IsNotFound(err) {
			return reconcile.Result{}, c.remove(ctx, request.Namespace, "copy-of-"+request.Name)
		}
		return reconcile.Result{}, err
	}
	want := corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: original.Namespace, Name: "copy-of-" + original.Name},
		Data:       original.Data,
	}
	if err := ctrl.SetControllerReference(&original, &want, c.Scheme()); err != nil {
		return reconcile.Result{}, err
	}
	err := c.Get(ctx, client.ObjectKeyFromObject(&want), &have)
	switch {
	case apierrors.IsNotFound(err):
		return reconcile.Result{}, client.IgnoreAlreadyExists(c.Create(ctx, &want))
	case err != nil:
		return reconcile.Result{}, err
	case maps.Equal(have.Data, want.Data):
		return reconcile.Result{}, nil
	}
	want.ResourceVersion = have.ResourceVersion
	return reconcile.Result{}, c.Update(ctx, &want)
}

func (c *copier) remove(ctx context.Context, namespace, name string) error {
	return client.IgnoreNotFound(c.Delete(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}))
}
