package main

import (
	"iter"
	"strings"
)

// files are client-go's tests of what informer/clientgo implements itself. The
// tests of client-go's queues, heaps and expiring stores would test client-go's
// own code.
var files = []string{
	"controller_test.go",
	"index_test.go",
	"listers_test.go",
	"main_test.go",
	"mutation_cache_test.go",
	"reflector_test.go",
	"reflector_watchlist_test.go",
	"shared_informer_test.go",
	"store_test.go",
	"typed_test.go",
	"util_test.go",
	"wait_test.go",
}

// renamed maps client-go's names to the names here, in the tests of the
// reflector. Other tests keep client-go's names: error handlers get client-go's
// reflector.
var renamed = map[string]string{
	"NewFIFO":                    "newFIFO",
	"NewNamedReflector":          "newNamedReflector",
	"NewReflector":               "newReflector",
	"NewReflectorWithOptions":    "newReflectorWithOptions",
	"Reflector":                  "reflector",
	"delayHandler":               "delay",
	"errorStopRequested":         "errStopped",
	"expectedGVK":                "wantGVK",
	"expectedType":               "wantType",
	"listerWatcher":              "lw",
	"setLastSyncResourceVersion": "setVersion",
	"typeDescription":            "description",
	"watchErrorHandler":          "onError",
}

// replaced are pieces of tests that access a field of client-go's informer.
var replaced = map[string]map[string]string{
	"shared_informer_test.go": {
		"informer.processor.getListener":   "informer.getListener",
		"informer.processor.clock = clock": "",
		"informer.resyncCheckPeriod":       "informer.resyncCheck",
		").resyncPeriod; e":                ").period; e",
	},
}

const (
	internals = "calls functions of client-go's that have no counterpart here"
	theirs    = "tests client-go's own code"
	standIn   = "reads client-go's informer; standins_test.go.txt has a version for ours"
)

// leftOut are the declarations that are not used, and why.
var leftOut = map[string]string{
	"BenchmarkReflectorResyncChanMany":             internals,
	"Example":                                      "calls an unexported method of client-go's queue; ExampleNewInformer does the same without it",
	"TestFIFOCache":                                theirs,
	"TestGetExpectedGVKFromObject":                 internals,
	"TestGetTypeDescriptionFromObject":             internals,
	"TestInitialEventsEndBookmarkTicker":           internals + ": client-go warns, the reflector here lists",
	"TestMutationCacheUpdateConcurrentDelete":      theirs,
	"TestMutationCacheUpdateConcurrentRecreate":    theirs,
	"TestProcessDeltasInBatch":                     internals,
	"TestReflectorResyncChan":                      internals,
	"TestReflectorRespectStoreTransformer":         "reads client-go's queues by unexported methods",
	"TestReplaceEvents":                            internals,
	"TestResetWatch":                               internals,
	"TestStoreResourceVersion":                     internals,
	"TestStoreResourceVersionWithNonMetaTransform": internals,
	"TestTypedIndexer":                             theirs,
	"TestTypedResourceEventHandlerAdapter":         theirs,
	"TestWithStoreMetricsDefaulting":               "reads a field of client-go's store",
	"eventHandlerCount":                            standIn,
	"isRegistered":                                 standIn,
	"isStarted":                                    standIn,
	"testResetWatch":                               internals,
	"testResourceVersion":                          internals,
	"testResourceVersionWithNonMetaTransform":      internals,
	"testReplaceEvents":                            internals,
}

// leftOutTests returns the tests in leftOut.
func leftOutTests() iter.Seq[string] {
	return func(yield func(string) bool) {
		for name := range leftOut {
			if strings.HasPrefix(name, "Test") && !yield(name) {
				return
			}
		}
	}
}
