package main

import (
	"slices"
	"testing"
)

func TestOnlyWhatFailedByItselfIsRunAgain(t *testing.T) {
	const output = "--- FAIL: TestOne (0.30s)\n    --- FAIL: TestOne/part (0.30s)\n        x.go:1: late\n--- PASS: TestTwo (0.00s)\n--- FAIL: TestThree (1.00s)\nFAIL\n"
	if names := failed([]byte(output)); !slices.Equal(names, []string{"TestOne", "TestThree"}) {
		t.Errorf("to be run again: %v", names)
	}
	for _, wrong := range []string{"panic: no\n", "WARNING: DATA RACE\n", "fatal error: all goroutines are asleep\n"} {
		if names := failed([]byte(output + wrong)); names != nil {
			t.Errorf("after %q these are run again: %v", wrong, names)
		}
	}
	if names := failed([]byte("x.go:1:2: undefined: y\nFAIL\n")); names != nil {
		t.Errorf("after what does not compile these are run again: %v", names)
	}
}
