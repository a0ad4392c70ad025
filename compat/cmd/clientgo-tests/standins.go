package main

import _ "embed"

// standInSource declares what helpers of client-go's tests find out by looking
// into its types.
//
//go:embed standins_test.go.txt
var standInSource string
