package main

import _ "embed"

// standInSource replaces helpers of client-go's tests that read unexported fields
// of client-go's types.
//
//go:embed standins_test.go.txt
var standInSource string
