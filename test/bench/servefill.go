package main

import (
	"context"
	"fmt"
	"strconv"

	"golang.org/x/sync/errgroup"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	discoveryclient "k8s.io/client-go/kubernetes/typed/discovery/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// inProtobuf has a client write and read protobuf, as Kubernetes' own do.
func inProtobuf(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.ContentType = protobufType
	config.QPS = -1 // as many as there are
	return config
}

// createConfigMaps creates small config maps, 1,000 in a namespace, of which
// every 10 share the value of a label.
func createConfigMaps(ctx context.Context, config *rest.Config, n int) error {
	core, err := coreclient.NewForConfig(inProtobuf(config))
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(16)
	for ns := range max(n/1000, 1) {
		if _, err := core.Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespaceOf(ns * 1000)}}, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	for i := range n {
		group.Go(func() error {
			_, err := core.ConfigMaps(namespaceOf(i)).Create(ctx, &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("settings-%06d", i), Labels: map[string]string{answerLabel(10): strconv.Itoa(i % (n / 10)), "app": "settings"}},
				Data:       map[string]string{"level": "info", "replicas": strconv.Itoa(i)},
			}, metav1.CreateOptions{})
			return err
		})
	}
	return group.Wait()
}

func namespaceOf(i int) string { return fmt.Sprintf("ns-%03d", i/1000) }

// toucher returns a function that changes something, of another kind than what
// is measured, so that the cluster has a new version.
func toucher(kubeconfig string) (func(context.Context) error, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	leases, err := coordinationclient.NewForConfig(inProtobuf(config))
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		_, err := leases.Leases(metav1.NamespaceDefault).Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{GenerateName: "touched-"}}, metav1.CreateOptions{})
		return err
	}, nil
}

func sliceName(i int) string { return fmt.Sprintf("shop-%03d", i) }

// createSlices creates EndpointSlices of five endpoints each.
func createSlices(ctx context.Context, config *rest.Config, n int) error {
	client, err := discoveryclient.NewForConfig(inProtobuf(config))
	if err != nil {
		return err
	}
	ready, name, port, protocol := true, "http", int32(8080), corev1.ProtocolTCP
	for i := range n {
		slice := &discoveryv1.EndpointSlice{
			ObjectMeta:  metav1.ObjectMeta{Name: sliceName(i), Labels: map[string]string{discoveryv1.LabelServiceName: "shop", discoveryv1.LabelManagedBy: "endpointslice-controller.k8s.io"}},
			AddressType: discoveryv1.AddressTypeIPv4,
			Ports:       []discoveryv1.EndpointPort{{Name: &name, Port: &port, Protocol: &protocol}},
		}
		for j := range 5 {
			node := fmt.Sprintf("node-%d", i*5+j)
			slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
				Addresses:  []string{fmt.Sprintf("10.1.%d.%d", i, j+1)},
				Conditions: discoveryv1.EndpointConditions{Ready: &ready, Serving: &ready},
				NodeName:   &node,
				TargetRef:  &corev1.ObjectReference{Kind: "Pod", Namespace: metav1.NamespaceDefault, Name: fmt.Sprintf("shop-%d-%d", i, j)},
			})
		}
		if _, err := client.EndpointSlices(metav1.NamespaceDefault).Create(ctx, slice, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	return nil
}
