// Package informertest helps to test controllers and other users of informers.
//
// A [Server] is a Kubernetes API server in memory. A test connects to it as a program
// connects to a cluster, and can make it fail:
//
//	server, err := informertest.NewServer(pod, service)
//	defer server.Close()
//	conn, err := cluster.New("test", server.Config())           // for informers
//	client, err := kubernetes.NewForConfig(server.Config())     // for writes
//
// A [Source] is the source of one informer, without HTTP:
//
//	source := informertest.NewSource(pod)
//	pods, err := informer.NewFromSource("test", source)
//
// Use a Server to test the whole controller, and a Source to test what it does with
// events. Both open no socket and work in a testing/synctest bubble.
package informertest
