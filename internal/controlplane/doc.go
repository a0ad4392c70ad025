// Package controlplane runs a real Kubernetes control plane for tests and
// benchmarks: the released kube-apiserver, etcd and kubectl, not a fake.
//
// One call starts a cluster, which stops when the test ends:
//
//	func TestSomething(t *testing.T) {
//		cp := controlplane.Start(t)
//		client, err := kubernetes.NewForConfig(cp.AdminConfig())
//		…
//	}
//
// A cluster takes a few seconds to start, so the tests of a package usually share
// one:
//
//	func TestMain(m *testing.M) { controlplane.Main(m) }
//
//	func TestSomething(t *testing.T) {
//		cp := controlplane.Shared(t)
//		…
//	}
//
// The programs are one binary. It is built on first use from the module in the
// repository's folder test/controlplane and kept in the user's cache; see [Build].
// The API server authorizes with RBAC and has three users with different rights;
// see [User]. Nothing else runs in the cluster: no controllers, no scheduler, no
// kubelets, so objects stay as they are written. [WithControllers] and [WithKwok]
// change that.
//
// The package itself imports nothing of the control plane.
package controlplane
