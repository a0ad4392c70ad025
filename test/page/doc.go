// Package page_test drives the page of `tidings serve` in Chromium, as its users do: by
// keys, and by what is on the screen. Every test fails if the browser reports a violation
// of the Content-Security-Policy, an error or a warning.
//
//	go test ./...                           in a headless Chromium, if there is one
//	PICTURES=../../docs/images go test ./... -run Pictures    writes the pictures of the documentation
//
//	MEASURE=1m go test ./... -run Measure -v -timeout 30m     prints what an open page costs, see docs/page.md
//
// CHROMIUM names the browser, if it is not found by itself. Without one the tests are
// skipped, unless CI is set.
package page
