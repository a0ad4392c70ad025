package main

import (
	"iter"
	"strings"
)

// files are client-go's tests of what informer/clientgo implements itself.
// Those of its queues, heaps, expiring stores and mutation caches test code that
// is client-go's in either case.
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

// renamed are the names that client-go has for what is not exported here or is
// called something else. They apply to the tests of the reflector; informers hand
// client-go's to the error handlers.
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

// replaced are pieces of tests that set or read a field of client-go's informer.
var replaced = map[string]map[string]string{
	"shared_informer_test.go": {
		"informer.processor.getListener":   "informer.getListener",
		"informer.processor.clock = clock": "",
		"informer.resyncCheckPeriod":       "informer.resyncCheck",
		").resyncPeriod; e":                ").period; e",
	},
}

const (
	internals = "calls functions of client-go's that have no counterpart"
	theirs    = "tests code that is client-go's in either case"
	standIn   = "looks into client-go's informer; standins_test.go.txt has one for ours"
)

// leftOut are the declarations that are not taken over, and why.
var leftOut = map[string]string{
	"BenchmarkReflectorResyncChanMany":             internals,
	"Example":                                      "asks client-go's queue for a key by an unexported method; ExampleNewInformer does the same without",
	"TestFIFOCache":                                theirs,
	"TestGetExpectedGVKFromObject":                 internals,
	"TestGetTypeDescriptionFromObject":             internals,
	"TestInitialEventsEndBookmarkTicker":           internals + ": it warns where ours lists",
	"TestMutationCacheUpdateConcurrentDelete":      theirs,
	"TestMutationCacheUpdateConcurrentRecreate":    theirs,
	"TestProcessDeltasInBatch":                     internals,
	"TestReflectorResyncChan":                      internals,
	"TestReflectorRespectStoreTransformer":         "asks client-go's queues for their contents by unexported methods",
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

// leftOutTests are the tests among them.
func leftOutTests() iter.Seq[string] {
	return func(yield func(string) bool) {
		for name := range leftOut {
			if strings.HasPrefix(name, "Test") && !yield(name) {
				return
			}
		}
	}
}
