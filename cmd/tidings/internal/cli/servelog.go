package cli

// logStart logs which program it is and how callers are admitted. The mirror logs
// resources and clusters, the server its limits.
func (g *globals) logStart(admit *admission, passthrough bool) {
	b := thisBuild()
	program := []any{"version", b.Version, "go", b.Go, "platform", b.Platform}
	if b.Commit != "" {
		program = append(program, "commit", b.Commit, "modified", b.Modified)
	}
	g.log.Info("starting", program...)
	callers := []any{"authentication", admit.authentication, "passthrough", passthrough}
	if admit.authentication == authenticateUpstream {
		authorities := admit.clientCA
		if authorities == "" {
			authorities = "those of each cluster"
		}
		callers = append(callers, "authorizationGrace", admit.grace, "clientAuthorities", authorities)
	}
	g.log.Info("callers", callers...)
}
