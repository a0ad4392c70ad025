package indexer

// scopes are the parts of a store that are listed and watched separately: single
// namespaces, or the whole store. Each has its own resourceVersion.
type scopes struct {
	all  scope            // the whole store, if each is nil
	each map[string]scope // by namespace
}

type scope struct {
	version uint64
	listed  bool
}

func newScopes(namespaces []string) scopes {
	var s scopes
	for _, namespace := range namespaces {
		if s.each == nil {
			s.each = map[string]scope{}
		}
		s.each[namespace] = scope{}
	}
	return s
}

func (s *scopes) of(namespace string) scope {
	if s.each == nil {
		return s.all
	}
	return s.each[namespace]
}

// advance moves the version of a namespace's scope forward.
func (s *scopes) advance(namespace string, version uint64) {
	if s.each == nil {
		s.all.version = max(s.all.version, version)
		return
	}
	v := s.each[namespace]
	v.version = max(v.version, version)
	s.each[namespace] = v
}

// list records a complete list of a scope and reports whether it was the first.
// The list's version counts even if it is lower than the last one seen: a
// cluster restored from a backup goes back in time, and so does its mirror.
func (s *scopes) list(namespace string, version uint64) (first bool) {
	listed := scope{version: version, listed: true}
	if s.each == nil {
		first, s.all = !s.all.listed, listed
		return first
	}
	first, s.each[namespace] = !s.each[namespace].listed, listed
	return first
}

// vanish records that a scope has no list any more. Its version stays: whatever
// comes back later is newer.
func (s *scopes) vanish(namespace string) {
	if s.each == nil {
		s.all.listed = false
		return
	}
	v := s.each[namespace]
	v.listed = false
	s.each[namespace] = v
}

// version returns the lowest version of all scopes: everything up to it has been
// seen.
func (s *scopes) version() uint64 {
	if s.each == nil {
		return s.all.version
	}
	lowest, first := uint64(0), true
	for _, v := range s.each {
		if first || v.version < lowest {
			lowest, first = v.version, false
		}
	}
	return lowest
}

// complete reports whether every scope has been listed.
func (s *scopes) complete() bool {
	if s.each == nil {
		return s.all.listed
	}
	for _, v := range s.each {
		if !v.listed {
			return false
		}
	}
	return true
}

func (s *scopes) reset() {
	s.all = scope{}
	for namespace := range s.each {
		s.each[namespace] = scope{}
	}
}
