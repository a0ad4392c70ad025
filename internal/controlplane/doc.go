// Package controlplane runs a real Kubernetes control plane for tests and
// benchmarks: kube-apiserver, etcd and kubectl as they are released, not a fake.
//
// One call gives a running cluster, and the cluster goes with the test:
//
//	func TestSomething(t *testing.T) {
//		cp := controlplane.Start(t)
//		client, err := kubernetes.NewForConfig(cp.AdminConfig())
//		…
//	}
//
// A cluster takes a few seconds to start, so the tests of a package usually
// share one:
//
//	func TestMain(m *testing.M) { controlplane.Main(m) }
//
//	func TestSomething(t *testing.T) {
//		cp := controlplane.Shared(t)
//		…
//	}
//
// The programs come out of one binary, which is built on first use from the
// module in the repository's controlplane folder and then kept in the user's
// cache; see [Build]. The cluster has an API server that authorises with RBAC
// and three users with different rights; see [User]. Nothing but the API
// server runs in it: no controllers, no scheduler, no kubelets, so objects stay
// as they are written. [WithControllers] and [WithKwok] change that.
//
// This package imports nothing of the control plane, so neither does whoever
// imports it.
package controlplane
